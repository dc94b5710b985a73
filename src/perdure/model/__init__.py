"""The nouns of the walk: frozen data, the transition table, limits and the error tree."""
