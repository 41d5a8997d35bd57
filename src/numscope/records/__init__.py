"""Plain data that every other room knows: sites, observations, findings, formats, errors."""
