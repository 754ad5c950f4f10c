"""Case -> isolated worker -> judge -> statistics -> Result. Knows no kernel and no web page."""
