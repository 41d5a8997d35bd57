"""Rules: small functions over the levels of a model's sites, each of which sees one kind of trouble coming."""
