"""General tools without knowledge of graphs: JSON records, files, messages, orders."""
