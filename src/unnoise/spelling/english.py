"""What is English about this spell checker, besides how words sound."""

import re

VOWELS = frozenset("aeiouy")
ENDINGS = frozenset(("s", "es", "d", "ed", "ing", "e", "ly"))  # grammatical ones
CONTRACTED = frozenset(("nt", "re", "ve", "ll"))  # what is left of wasn't and we've in a text without apostrophes
ONE_LETTER_WORDS = frozenset("ai")
PRONOUNS = ("i", "you", "he", "she", "it", "we", "they", "that", "who", "there", "what")
CLITICS = {"m": ("i",), "ll": PRONOUNS, "ve": ("i", "you", "we", "they"), "re": ("you", "we", "they"), "d": PRONOUNS}
CLITICS["s"] = ("he", "she", "it", "that", "who", "there", "what", "here", "let", "where", "how")
AUXILIARIES = ("do", "does", "did", "is", "are", "was", "were", "has", "have", "had", "ca", "wo", "could", "would", "should")
CONTRACTIONS = {word + clitic: f"{word}'{clitic}" for clitic, words in CLITICS.items() for word in words}
CONTRACTIONS |= {word + "nt": f"{word}n't" for word in AUXILIARIES} | {"oclock": "o'clock"}  # as written without apostrophe
_CONFUSED = """\
accept except, advice advise, affect effect, all ally, allowed aloud, altar alter, an and, bare bear, brake break, buy
by bye, choose chose, cloth clothe clothes, coarse course, complement compliment, council counsel, dairy diary, desert
dessert, do due, fair fare, find fined, flour flower, for four fore, form from, hear here, heard herd, hole whole, hour
our are, its it's, knew new, knight night, know no now, lead led, loose lose, made maid, mail male, meat meet, of off,
one won, passed past, pair pear, peace piece, plain plane, pray prey, principal principle, quiet quite, read red, right
write rite, road rode, root route, sail sale, sea see, sew so sow, stationary stationery, steal steel, tail tale, than
then, their there they're, threw through though thought, throne thrown, to too two, wait weight, war wore, waist waste,
way weigh, weak week, wear where were we're, weather whether, which witch, who's whose, wood would, your you're
"""
CONFUSED = {
    word: frozenset(words.split()) - {word} for words in _CONFUSED.replace("\n", " ").split(",") for word in words.split()
}  # known words that are often written for each other
_VARIANTS = """\
aeroplane airplane, aluminium aluminum, cosy cozy, defence defense, grey gray, jewellery jewelry, licence license, moustache
mustache, mum mom, mummy mommy, mums moms, offence offense, plough plow, programme program, programmes programs, pyjamas
pajamas, sceptical skeptical, tyre tire, tyres tires
"""
VARIANTS = frozenset(frozenset(words.split()) for words in _VARIANTS.replace("\n", " ").split(","))
_BRITISH = (  # endings, and what they are in American spelling
    (re.compile(r"(\w{3,})our(s|ed|ing|ite|ites|ful|able|less|hood)?"), r"\1or\2"),
    (re.compile(r"(\w{3,})re(s?)"), r"\1er\2"),
    (re.compile(r"(\w{4,})is(e|es|ed|er|ing|ation)"), r"\1iz\2"),
    (re.compile(r"(\w{3,})ys(e|es|ed|ing)"), r"\1yz\2"),
)


def are_variants(one: str, other: str) -> bool:
    """Whether two words are one, in British and in American spelling: neither is a mistake for the other."""
    if frozenset((one, other)) in VARIANTS:
        return True
    return any(
        pattern.sub(american, british) == plain
        for british, plain in ((one, other), (other, one))
        for pattern, american in _BRITISH
        if pattern.fullmatch(british)
    )


def differ_by_ending(one: str, other: str) -> bool:
    """Whether one of two words is the other with a grammatical ending, its last consonant doubled before it or not."""
    shorter, longer = sorted((one, other), key=len)
    rest = longer[len(shorter) :] if longer.startswith(shorter) else ""
    return rest in ENDINGS or (rest[:1] == shorter[-1:] and rest[:1] not in VOWELS and rest[1:] in ENDINGS)
