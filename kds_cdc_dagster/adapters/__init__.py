"""One technology per file, named technology_port."""
