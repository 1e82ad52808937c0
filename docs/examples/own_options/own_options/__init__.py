"""Options for lmtool from outside, one Python file and one YAML file each, in a folder for each group."""
