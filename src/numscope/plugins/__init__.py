"""Statistics, features, loggers and rules of users’ own."""
