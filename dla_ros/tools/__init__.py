"""The command line tools, one file each."""
