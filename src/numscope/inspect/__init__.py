"""Statistics of one model by a configuration."""
