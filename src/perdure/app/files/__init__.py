"""Files of items, read; files of results, written."""
