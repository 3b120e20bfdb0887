"""What is English about this spell checker, besides how words sound."""

VOWELS = frozenset("aeiouy")
ENDINGS = frozenset(("s", "es", "d", "ed", "ing", "e", "ly"))  # grammatical ones
CONTRACTED = frozenset(("nt", "re", "ve", "ll"))  # what is left of wasn't and we've in a text without apostrophes
ONE_LETTER_WORDS = frozenset("ai")
