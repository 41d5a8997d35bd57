"""The folder that nvdlfw-inspect loads: each file in it is executed by its path."""
