"""A run as a page to look at: one HTML file, or a short digest. Reads run folders, without torch."""
