"""English word tables (contractions, confused words, spelling variants, endings), and distances in letters and in sound.

The distances need rapidfuzz and jellyfish from the extra `spelling`.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

VOWELS = frozenset("aeiouy")
ENDINGS = frozenset(("s", "es", "d", "ed", "ing", "e", "ly"))  # grammatical ones
CONTRACTED = frozenset(("nt", "re", "ve", "ll"))  # fragments of wasn't and we've in a text without apostrophes
ONE_LETTER_WORDS = frozenset("ai")
PRONOUNS = ("i", "you", "he", "she", "it", "we", "they", "that", "who", "there", "what")
CLITICS = {"m": ("i",), "ll": PRONOUNS, "ve": ("i", "you", "we", "they"), "re": ("you", "we", "they"), "d": PRONOUNS}
CLITICS["s"] = ("he", "she", "it", "that", "who", "there", "what", "here", "let", "where", "how")
AUXILIARIES = ("do", "does", "did", "is", "are", "was", "were", "has", "have", "had", "ca", "wo", "could", "would", "should")
CONTRACTIONS = {word + clitic: f"{word}'{clitic}" for clitic, words in CLITICS.items() for word in words}
CONTRACTIONS |= {word + "nt": f"{word}n't" for word in AUXILIARIES} | {"oclock": "o'clock"}  # as written without apostrophe
_CONFUSED = """\
accept except expect, access excess, adapt adept adopt, addition edition, advice advise, affect effect, aisle isle, all
ally, allowed aloud, altar alter, an and, angel angle, ascent assent, bail bale, bare bear, bazaar bizarre, beach beech,
beat beet, berth birth, board bored, boarder border, brake break, breadth breath breathe bread bred, bridal bridle, broach
brooch, buy by bye, canvas canvass, carat carrot, casual causal, ceiling sealing, cell sell, cellar seller, censor sensor,
cent scent sent, cereal serial, choose chose, chord cord, cite sight site, cloth clothe clothes, coarse course, collage
college, complement compliment, confident confidant, conscience conscious, corps corpse, costumer customer, council counsel,
creak creek, currant current, dairy diary, days daze, dear deer, decent descent dissent, desert dessert, device devise,
diner dinner, discreet discrete, do due, dose does, dual duel, dying dyeing, elicit illicit, eligible illegible, eminent
imminent, envelop envelope, fair fare, feat feet, find fined, flea flee, flour flower, for four fore, foreword forward, form
from, formally formerly, forth fourth, foul fowl, gait gate, gorilla guerrilla, grate great, groan grown, guessed guest,
hair hare, hangar hanger, hart heart, heal heel, hear here, heard herd, heroin heroine, higher hire, him hymn, hole whole,
holy wholly, hour our are, idle idol, its it's, kernel colonel, knew new, knight night, know no now, lain lane, later
latter, lead led, leased least, lessen lesson, liable libel, lightening lightning, loan lone, loose lose, made maid, mail
male, manner manor, marital martial marshal, meat meet, medal meddle metal mettle, miner minor, missed mist, moral morale,
morning mourning, muscle mussel, naval navel, none nun, oar ore, of off, one won, pail pale, pain pane, pair pear, passed
past, patience patients, pause paws, peace piece, peak peek, peal peel, pedal peddle, perfect prefect, persecute prosecute,
personal personnel, plain plane, pole poll, poor pour pore, pray prey, precede proceed, presence presents, principal
principle, prise prize, profit prophet, quiet quite, rain reign rein, rap wrap, read red, respectfully respectively, right
write rite, ring wring, road rode, role roll, root route, sail sale, scene seen, sea see, sever severe, sew so sow, shone
shown, shore sure, soar sore, sole soul, some sum, son sun, stair stare, stake steak, stationary stationery, statue statute,
steal steel, story storey, straight strait, suit suite, sweat sweet, tail tale, taught taut, team teem, tear tier, than
then, their there they're, threw through though thought, throne thrown, tide tied, to too two, toe tow, trail trial, troop
troupe, united untied, vain vein, vale veil, vial vile, waist waste, wait weight, wander wonder, war wore, warn worn, wary
weary, way weigh, weak week, wear where were we're, weather whether, which witch, whine wine, who's whose, wood would, yoke
yolk, your you're
"""
CONFUSED = {
    word: frozenset(words.split()) - {word} for words in _CONFUSED.replace("\n", " ").split(",") for word in words.split()
}  # known words that are often confused
_VARIANTS = """\
aeroplane airplane, aluminium aluminum, cosy cozy, defence defense, grey gray, jewellery jewelry, license license, moustache
mustache, mum mom, mummy mommy, mums moms, offence offense, plough plow, programme program, programmes programs, pyjamas
pajamas, sceptical skeptical, tyre tire, tyres tires
"""
VARIANTS = frozenset(frozenset(words.split()) for words in _VARIANTS.replace("\n", " ").split(","))
_BRITISH = (  # British endings and their American spelling
    (re.compile(r"(\w{3,})our(s|ed|ing|ite|ites|ful|able|less|hood)?"), r"\1or\2"),
    (re.compile(r"(\w{3,})re(s?)"), r"\1er\2"),
    (re.compile(r"(\w{4,})is(e|es|ed|er|ing|ation)"), r"\1iz\2"),
    (re.compile(r"(\w{3,})ys(e|es|ed|ing)"), r"\1yz\2"),
)


def are_variants(one: str, other: str) -> bool:
    """Return whether two words are the British and the American spelling of one word."""
    if frozenset((one, other)) in VARIANTS:
        return True
    return any(
        pattern.sub(american, british) == plain
        for british, plain in ((one, other), (other, one))
        for pattern, american in _BRITISH
        if pattern.fullmatch(british)
    )


def differ_by_ending(one: str, other: str) -> bool:
    """Return whether one word is the other plus a grammatical ending, with or without a doubled consonant."""
    shorter, longer = sorted((one, other), key=len)
    rest = longer[len(shorter) :] if longer.startswith(shorter) else ""
    return rest in ENDINGS or (rest[:1] == shorter[-1:] and rest[:1] not in VOWELS and rest[1:] in ENDINGS)


AT_ONCE = 64  # words compared with all others at once


def edit_distance(one: str, other: str) -> int:
    """Return the optimal string alignment distance: the number of insertions, deletions, replacements and adjacent swaps."""
    from rapidfuzz.distance import OSA

    return OSA.distance(one, other)


def within(words: Sequence[str], others: Sequence[str], distance: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for each word the indices of the other words within a distance, and the distance of each."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    for first in range(0, len(words), AT_ONCE):
        some = words[first : first + AT_ONCE]
        for edits in process.cdist(some, others, scorer=OSA.distance, score_cutoff=distance, dtype=np.uint8):
            (places,) = np.nonzero(edits <= distance)
            yield places, edits[places]


@cache
def sound(word: str) -> str:
    """Return the Metaphone of a word, its approximate English sound."""
    from jellyfish import metaphone

    return metaphone(word)
