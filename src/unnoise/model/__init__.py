"""`Model`: a method, a network and a codec, with sampling, infilling, scoring, saving and loading."""
