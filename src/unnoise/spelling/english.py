"""What is English about this spell checker, besides how words sound."""

VOWELS = frozenset("aeiouy")
ENDINGS = frozenset(("s", "es", "d", "ed", "ing", "e", "ly"))  # grammatical ones
CONTRACTED = frozenset(("nt", "re", "ve", "ll"))  # what is left of wasn't and we've in a text without apostrophes
ONE_LETTER_WORDS = frozenset("ai")
PRONOUNS = ("i", "you", "he", "she", "it", "we", "they", "that", "who", "there", "what")
CLITICS = {"m": ("i",), "ll": PRONOUNS, "ve": ("i", "you", "we", "they"), "re": ("you", "we", "they"), "d": PRONOUNS}
CLITICS["s"] = ("he", "she", "it", "that", "who", "there", "what", "here", "let", "where", "how")
AUXILIARIES = ("do", "does", "did", "is", "are", "was", "were", "has", "have", "had", "ca", "wo", "could", "would", "should")
CONTRACTIONS = {word + clitic: f"{word}'{clitic}" for clitic, words in CLITICS.items() for word in words}
CONTRACTIONS |= {word + "nt": f"{word}n't" for word in AUXILIARIES}  # as they are written without an apostrophe
