"""Tools of all rooms that know nothing of graphs: JSON records, files, messages."""
