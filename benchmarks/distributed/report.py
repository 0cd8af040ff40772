"""x"""
def write_report(d, runs): return ""
