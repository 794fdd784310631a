"""Which words after a number are units, and so dropped; all others are part of the answer."""

from __future__ import annotations

import re

SHORT_UNITS = frozenset(
    """mm cm dm km nm kg mg ml cl dl ft yd mi lb lbs oz hr hrs min mins sec secs mph kph kmh in hz khz mhz
    kw kj kcal cal mol ev kev mev gev pa kpa ghz rad atm ma ms ns yr gb mb kwh rpm psi ppm db amu gal qt usd eur
    yuan yen erg dyn eV keV tbsp tsp""".split()
)
"""Abbreviations: units when they stand behind a value."""
ALSO_PRODUCTS = frozenset("mg ml ma ms mi lb qt pa ns gb mb db cl dl nm in gal min atm".split())
"""Abbreviations that may be letters: units behind one number and a space (3 ms), products elsewhere (3ms, 2\\pi ms)."""
PRODUCTS = frozenset({"mg", "ma"})
"""Abbreviations that in a formula are letters: m g, the weight of m; 3\\text{ mg} are milligrams."""
WITHOUT_POWERS = (ALSO_PRODUCTS | {"ev"}) - {"in", "mi", "nm"}
"""Abbreviations that have no powers as units: mL^2 is m times L^2."""
UNIT_LETTERS = frozenset("mgshLlJNWVAKCFT")
"""Single upright letters that are units after a value: 5\\text{ m}."""
UNIT_WORDS = frozenset(
    """unit units dollar dollars cent cents euro euros pound pounds percent degree degrees radian radians
    meter meters metre metres mile miles inch inches foot feet yard yards kilometer kilometers kilometre
    kilometres centimeter centimeters centimetre centimetres millimeter millimeters gram grams kilogram
    kilograms ounce ounces ton tons liter liters litre litres gallon gallons second seconds minute minutes
    hour hours day days week weeks month months year years newton newtons joule joules watt watts volt volts
    ohm ohms ampere amperes kelvin celsius fahrenheit mole moles hertz people person children men women
    pct percentage cup teaspoon tablespoon pint quart""".split()
)
CONNECTING = frozenset(
    """square cubic sq cu per of each total a an the squared cubed different possible ordered distinct real
    old tall long wide""".split()
)
"""Words that may occur beside units: 12 square units, 60 miles per hour, 18 years old."""
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_NOT_COUNTED = frozenset(
    (
        "plus minus times thirds halves quarters fourths fifths sixths sevenths eighths ninths tenths hundredths "
        "thousandths as its has was does always sometimes perhaps besides others extras "
        # numbers
        "ones twos threes fours fives sixes sevens eights nines tens elevens twelves hundreds thousands millions "
        "billions googols dozens scores pairs "
        # what has an opposite
        "heads tails evens odds reds blues whites blacks greens gains losses wins defeats rises falls raises drops "
        "lefts rights ups downs highs lows debits credits debts deficits surpluses profits deposits withdrawals buys "
        "sells absences presences strikes strokes overs unders positives negatives"
    ).split()
)
_NOT_COUNTED_ENDINGS = ("wards", "ths", "wise", "illions", "creases", "lakhs", "crores", "ss", "us", "is")
"""The last three end singulars: mass, radius, axis."""


def is_unit(word: str) -> bool:
    """A known unit, or something counted: a plural such as apples."""
    is_plural = word.endswith("s") and len(word) >= 4 and not word.endswith(_NOT_COUNTED_ENDINGS) and "-" not in word
    return word in UNIT_WORDS or word in SHORT_UNITS or (is_plural and word not in _NOT_COUNTED)


def scale_of(words: list[str]) -> int | None:
    """What a tail of words multiplies a number by: 1 for units, 10^6 for `million dollars`, None if it is no unit."""
    scale = 1
    while words and words[0] in SCALES:
        scale *= SCALES[words[0]]
        words = words[1:]
    is_joined = words[:1] in (["of"], ["per"])  # 5 of hearts, 5 per day
    is_units = any(map(is_unit, words)) and all(is_unit(word) or word in CONNECTING for word in words)
    return scale if not words or (is_units and not is_joined) else None


def is_measure(text: str) -> bool:
    """`cm`, `cm^2`, `degrees`, `years`: something measured in units that we know, and not counted as apples are."""
    words = re.findall(r"[A-Za-z]+", text)
    known = UNIT_WORDS | SHORT_UNITS | CONNECTING
    return bool(words) and all(word in UNIT_LETTERS or word.casefold() in known for word in words)


def is_unit_text(text: str) -> bool:
    """`m s^{-1}`, `km/h`: units with their powers and nothing else."""
    words = re.findall(r"[A-Za-z]+", re.sub(r"\\[A-Za-z]+|\\.", " ", text))
    rest = re.sub(r"[A-Za-z]+|\^\{?-?\d+\}?|\\cdot|\\[,;:! ]|[\s./*·()]", "", text)
    known = [word in UNIT_LETTERS or word.casefold() in SHORT_UNITS or word.casefold() in UNIT_WORDS for word in words]
    return bool(words) and bool(re.search(r"[\^/]", text)) and not rest and all(known)
