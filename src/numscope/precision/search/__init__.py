"""Searching for the layers that need high precision."""
