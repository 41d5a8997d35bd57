"""The scripts are made by the command."""
