"""The page of runs that go on, from a local server. Reads run folders, without torch."""
