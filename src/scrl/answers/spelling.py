r"""One spelling for what is only typed differently: unicode signs, spacing, styling, currency and percent signs.

`\left( \dfrac{1}{2}\,,\ 50\% \right)` → `( \frac{1}{2} , 50 )`. Degree signs become `°`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from scrl.answers.units import is_unit_text

_SYMBOLS = {
    "−": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∗": "*", "÷": r"\div ",
    "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ",
    "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "≈": r"\approx ",
    "⁄": "/", "∠": r"\angle ", "∖": r"\setminus ", "’": "'", "′": "'",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "θ": r"\theta ", "λ": r"\lambda ",
    "μ": r"\mu  ", "µ": r"\mu  ", "σ": r"\sigma ", "φ": r"\phi ", "ω": r"\omega ", "ℝ": r"\mathbb{R}",
    "€": "", "£": "", "¥": "", "￥": "", "₹": "", "℃": "°C", "℉": "°F", "∛": "√[3]", "∜": "√[4]",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u3000": " ", "。": ".", "、": ",", "…": "...",
    "⋯": "...", "∶": ":", "“": "", "”": "", "Ω": r"\Omega ", "Δ": r"\Delta ",
} | dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u200f", "")  # fmt: skip
_FULLWIDTH = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_STYLED = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0x1D400, 0x1D800)}
_FRACTIONS = {
    code: r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", chr(code)).split("⁄"))
    for code in [0xBC, 0xBD, 0xBE, *range(0x2150, 0x215F)]
}
_CIRCLED = {0x245F + n: f"({n})" for n in range(1, 10)}
_UNICODE = _STYLED | _CIRCLED | _FRACTIONS | _FULLWIDTH | str.maketrans(_SYMBOLS)
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "₀₁₂₃₄₅₆₇₈₉"
_LEVEL = str.maketrans(_RAISED + _LOWERED, "0123456789-" + "0123456789")
_RAISED_RUN, _LOWERED_RUN = re.compile(f"[{_RAISED}]+"), re.compile(f"[{_LOWERED}]+")

_SPACE = r"(?:\s|\\[ ,;:!]|~)"
_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.?\d+)(?:\s*\\(?:times|cdot)(?![A-Za-z])\s*10\s*\^\s*(?:\d|\{-?\d+\}))?"
_ARRAY = r"\\begin\s*\{array\}\s*\{[lcr|\s]*\}"
_INDEX = r"_(?:\d|\{\d+\})"
_LABEL = r"(?<![^\s,;}])([a-j]|[ivx]{1,4}|\d)\)"
_AND = r"(?:[\s,.}]|\\text\s*\{|and\b)"
_COLON = r"\)\s*:(?!\s*\(\w\))"
_COUNTED = "时钟里米克秒元个人天度"
_BOLD = r"\\(?:mathbf|boldsymbol|bm)"
_OTHERWISE = {"bigcup": "cup", "land": "wedge", "rightarrow": "to", "longrightarrow": "to", "lnot": "neg"}
_FUNCTIONS = "(?:arc)?(?:sin|cos|tan)|cot|sec|csc|(?:sin|cos|tan|cot)h|log|ln|exp"
_STYLES = (
    r"left\s*\.|right\s*\.|left|right|middle|bigl?|bigr|Bigl?|Bigr|biggl?|biggr|Biggl?|Biggr|displaystyle|textstyle|scriptstyle|limits|"
    "mathbf|boldsymbol|bm|mathit|mathsf|mathtt|mathnormal|bf|rm|it|mathopen|mathclose|mathord|"
    "tiny|small|large|Large|LARGE|huge|Huge"
)


_RULES: list[tuple[str, str, str | Callable[[re.Match[str]], str]]] = [
    ("– — --", r"(?<=\d)\s*(?:[–—]|--|\\text\s*\{\s*--\s*\})\s*(?=\d)", r" \\endash "),  # 10–20 is a range, and 10--20
    ("-", r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)", r"\1\\endash \2\\endash \3"),
    ("-", r"(\\text\s*\{[^{}]*\d)\s*-\s*(?=\d)", r"\1 \\endash "),
    ("– —", r"[–—]", "-"),
    ("\\\\", r"\\\\\s*\[[^\[\]]*\]", r"\\\\ "),  # \\[4pt]
    (r"\langle", r"\\langle((?:(?!\\rangle)[^,])*,(?:(?!\\rangle).)*)\\rangle", r"(\1)"),
    ("10", r"(?<=\d)\s*x\s*(?=10\s*\^)", r"\\times "),
    ("{:}", r"\{:\}", ":"),
    (r"\not", r"\\not\s*=", r"\\ne "),
    ("leq geq neq", r"\\(le|ge|ne)q(?:slant)?(?![A-Za-z])", r"\\\1 "),
    (r"\operatorname", rf"\\operatorname\s*\{{\s*({_FUNCTIONS})\s*\}}", r"\\\1 "),
    ("underline", rf"(?<![\^{{])(?<![\^{{] )\\underline(?:\{{([^{{}}]*)\}}|\s*(\d))(?:{_SPACE}*(?=\\u))?", r"\1\2"),
    ("{", r"\{\s*,\s*\}", "{,}"),
    ("{,}", r"(?<![\d.])0\{,\}(?=\d)", "0."),
    ("~", r"(?:(?<=^)|(?<=[\s(]))~(?=[A-Za-z(])", r"\\neg "),
    ("-", r"^(\d+(?:\.\d+)?)\s*-\s*(\d+(?:\.\d+)?)(?=\s*(?:\\?%|\\text|[A-Za-z]{3}))", r"\1\\endash \2"),
    ("- /", r"^(?=.*\d{4})(\d{1,4})[-/](\d{1,2})[-/](\d{1,4})$", r"\1\\endash \2\\endash \3"),  # a date; not 1/2/3
    (r"\ {,}", r"(?<=\d)\s*(?:\{,\}|,\\!|\\,|\\!|\\ )\s*(?=\d{3}(?!\d))", ""),  # 1{,}000  1,\!000  1\,000
    ("bf bm bold", rf"{_BOLD}\s*(?:\{{\s*([ie])\s*\}}|\s([ie])(?![A-Za-z]))(?!\s*_)", r"\\bold{\1\2}"),
    ("\\", rf"\\(?:{_STYLES})(?![A-Za-z])", " "),
    ("color", r"\\(?:textcolor|color)\s*\{[^{}]*\}", " "),
    ("circ degree", r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degrees?(?![A-Za-z])", "°"),
    ("°", r"°\s*(?:\\(?:text|mathrm)\s*\{\s*[CF]\s*\}|[CF](?![A-Za-z]))", "°"),
    ("dfrac tfrac cfrac dbinom tbinom", r"\\[dtc](frac|binom)(?![A-Za-z])", r"\\\1"),
    (r"\ ~", r"(?<!\\)\\(?:[,;:! ]|(?:quad|qquad|hfill)(?![A-Za-z])|hspace\s*\{[^{}]*\})|~|\\\n", " "),
    ("% $ \\", r"\\?%|\\?\$|(?<!\\)\\[()\[\]]|\\(?:percent|euro|pounds)(?![A-Za-z])", " "),
    ("np. math. sympy. numpy.", r"(?<![\w.])(?:np|math|sympy|numpy)\.(?=[a-z])", ""),
    (".", r"(?<![A-Za-z])([AaPp])\.\s?[Mm]\.?(?![A-Za-z])", r"\1m"),
    ("**", r"\*\*", "^"),
    ("dots ...", r"\\(?:[lc]?dots|dots[cbmi]|hdots)(?![A-Za-z])|\.{3,}", "..."),
    ("_", r"\((\d+)\)\s*_", r"\1_"),  # (1010)_2
    ("SI qty", r"\\(?:SI|qty)\s*\{([^{}]*)\}\s*\{(?:[^{}]|\{[^{}]*\})*\}", r"\1"),
    (r"\num", r"\\num\s*\{([^{}]*)\}", r"\1"),
    ("K J W V N Omega", rf"^((?:[^\d,;]*(?:=|\\approx|:))?\s*[-+]?{_NUMBER}){_SPACE}+(?:[KJWVN]|\\Omega)$", r"\1"),
    (" ".join(_COUNTED), rf"(?<=\d){_SPACE}*(?:平方|立方)?[厘毫千公]?(?:小时|分钟|分?[{_COUNTED}])$", ""),
    ("或", r"(?<![\u4e00-\u9fff])或(?![\u4e00-\u9fff])", r" \\text{or} "),
    ("和 且", r"(?<![\u4e00-\u9fff])[和且](?![\u4e00-\u9fff])", r" \\text{and} "),
    ("mathbb vec hat bar pmod", r"\\(mathbb|vec|hat|bar|pmod)\s+([A-Za-z0-9])(?![A-Za-z0-9])", r"\\\1{\2}"),
    ("mod", r"\(\s*(?:\\(?:text|mathrm)\s*\{\s*mod\s*\}|\\b?mod(?![A-Za-z])|mod\b)\s*(\w+)\s*\)", r"\\pmod{\1}"),
    ("choose", r"\{\s*(\w+)\s*\\choose\s*(\w+)\s*\}", r"\\binom{\1}{\2}"),
    ("array", rf"\\\{{\s*{_ARRAY}((?:(?!\\end).)*)\\end\s*\{{array\}}", r"\\begin{cases}\1\\end{cases}"),
    ("array", _ARRAY, r"\\begin{array}"),
    ("√", r"√(\[\d\])?\s*(\d[\d,]*(?:\.\d+)?)", r"\\sqrt\1{\2}"),
    ("√", r"√", r"\\sqrt "),
    ("cup land arrow not", rf"\\({'|'.join(_OTHERWISE)})(?![A-Za-z])", lambda match: rf"\{_OTHERWISE[match[1]]} "),
    (r"\times", r"^\s*\d+(?:\s*\\times\s*\d+)+\s*\.?$", lambda match: match[0].replace("times", "by")),  # a size
    (r"\mu", r"(?<=\d)\s*(?:\\mu\s*(\\(?:text|mathrm)\s*\{\s*)|(\\(?:text|mathrm)\s*\{\s*)\\mu\s*)", r" \1\2"),  # 5 µm
    (r"\mu", r"(?<=\d) \\mu  ([smAFLCVWH])$", r"\\text{ \1}"),  # 5 µm, not 5\mu m
    ("{}", r"\{\}(?=[\^_])", ""),
    ("_", r"\\(?:text|mathrm)\s*\{([A-Z][A-Za-z]*)\}(?=\s*_\s*\{?\d)", r"\1"),
    ("_", rf"\\(?:text|mathrm)\s*\{{((?:[A-Z][a-z]?|{_INDEX}|[()])*{_INDEX}(?:[A-Z][a-z]?|{_INDEX}|[()])*)\}}", r"\1"),
    ("USD EUR GBP INR Rs", r"(?:\\text\s*\{\s*)?\b(?:USD|EUR|GBP|INR|Rs\.?)\s*\}?\s*(?=\d)", ""),
    ("st nd rd th", r"^\s*(?:\\text\s*\{)?\s*(\d+)(?:[\s^{]|\\(?:text|mathrm)\s*\{)*(?:st|nd|rd|th)[\s}.]*$", r"\1"),
    ("'", r"(?<=\d)'(?=\d{3}(?!\d))", ""),  # 1'000
    ("base", r"(?<=[\dA-F])(?:\s|\\text\s*\{|\()*(?:in\s+)?base[\s}]*(\d+|[a-z]+)[\s)}]*$", r"_{\1}"),
    (r"\mid |", r"(\\\{(?:(?!\\mid|\\\}|[:|]).)*)(?:\\mid(?![A-Za-z])|\s\|\s)", r"\1:"),  # {2k | k > 0}
    ("答案", r"^\s*答案[是为:\s]*", ""),
    ("art", r"\\text\s*\{\s*[Pp]art\s*(\(\w+\))\s*:?\s*\}|\b[Pp]art\s*(\(\w+\))\s*:?", r" \1\2 "),
    (":", rf"^\s*\([aAiI]{_COLON}.*{_COLON}", lambda match: re.sub(_COLON, ")", match[0])),  # (a): 3, (b): 5
    (")", rf"^\s*(?:{_LABEL}[^()]*){{2,}}$", lambda match: re.sub(_LABEL, r"(\1)", match[0])),  # a) 3, b) 5
    (")", rf"^{_AND}*\(\d\)(?:{_AND}*\(\d\))+(?:{_AND}|only)*$", lambda match: ", ".join(re.findall(r"\d", match[0]))),
]
"""What must occur, a pattern, and its replacement, applied in this order."""
_REWRITES = [(needles.split(), re.compile(pattern), replacement) for needles, pattern, replacement in _RULES]
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z]{2})")  # \\frac, escaped once too often
_GROUPED = re.compile(r"[-+]?\d{1,3}(?: \d{3})+(?:\.\d+)?")  # 1 000 000
_EMPHASIS = re.compile(r"(\*\*|__|\*|`)(?P<inner>[^*`]+)\1")  # **5**, as in Markdown
_UPRIGHT = re.compile(rf"(?<=[\d}})]){_SPACE}*\\(?:mathrm|text|textrm|rm)\s*\{{((?:[^{{}}]|\{{[^{{}}]*\}})*)\}}$")
"""Units with powers, after a value."""
_UPRIGHT_FRACTION = re.compile(
    rf"(?<=[\d}})]){_SPACE}*\\[dt]?frac\s*\{{\s*\\(?:mathrm|text)\s*\{{([^{{}}]*)\}}\s*\}}"
    rf"\s*\{{\s*\\(?:mathrm|text)\s*\{{([^{{}}]*)\}}\s*(\^\d|\^\{{\d\}})?\s*\}}$"
)
"""9.8 \\frac{\\text{m}}{\\text{s}^2}."""
_BRACKETED = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\\text\s*\{\s*(and|or)\s*\}")
_SEPARATOR = re.compile(r"(?<![\\{]),(?!\\!|\d{3}(?!\d))|(?<!\\);|\b(?:and|or)\b")
_MONEY = re.compile(
    r"\\\$\s*(\d+(?:(?:,|\{,\}|,\\!|\\,|\\!)\d{3}(?!\d))*(?:\.\d+)?(?:\s*(?:hundred|thousand|[mbtr]+illion)\b)?)"
)
"""\\$5, in a list or a rate: 5 dollars, as opposed to 3 apples."""
_FRAME = re.compile(r"\$?\s*\\(?:boxed|fbox)\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}\s*\$?")
_NESTED_TEXT = re.compile(r"\\(?:ce|text|mathrm)\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_ORBITALS = re.compile(r"(?:\[[A-Z][a-z]\]\s*)?(?:\d[spdf]\s*\^\s*(?:\{\d+\}|\d)\s*)+")
"""1s^2 2s^2 2p^6, an electron configuration."""
_CHEMICAL = re.compile(r"\\ce\s*\{([^{}]*)\}|(?<![\w\\])((?:[A-Z][a-z]?\d*){2,})(?![\w{(}])")
TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|textnormal|textup|mathrm|mbox|hbox|operatorname\*?|emph)\s*\{([^{}]*)\}"
)


def clean(text: str) -> str:
    """The text without what never changes an answer's meaning."""
    text = text.translate(_UNICODE).strip()
    emphasis = _EMPHASIS.fullmatch(text)
    text = emphasis["inner"] if emphasis else text
    while frame := _FRAME.fullmatch(text):
        text = frame[1].strip()
    text = text.replace(" ", "") if _GROUPED.fullmatch(text) else text
    text = _RAISED_RUN.sub(lambda match: f"^{{{match[0].translate(_LEVEL)}}}", text)
    text = _LOWERED_RUN.sub(lambda match: f"_{{{match[0].translate(_LEVEL)}}}", text)
    text = _CHEMICAL.sub(_with_subscripts, text)
    if _ORBITALS.fullmatch(text):
        return re.sub(r"[\s{}]", "", text).replace("^", r"\uparrow ")  # no product, and no number to a power
    is_list = bool(_SEPARATOR.search(_BRACKETED.sub(r" \1 ", text)))  # a comma or "and" outside all brackets
    if is_list or "per" in text:
        text = text.replace("$", r"\$") if text.count("$") == 1 and r"\$" not in text else text
        text = _MONEY.sub(r"\1 dollars ", text)
    if is_list:
        text = re.sub(r"\\?%|\\percent(?![A-Za-z])", " percent ", text)
    text = _UPRIGHT.sub(lambda m: "" if is_unit_text(m[1]) and not (is_list and "{" not in m[1]) else m[0], text)
    text = _UPRIGHT_FRACTION.sub(lambda m: "" if is_unit_text(f"{m[1]}/{m[2]}") and not is_list else m[0], text)
    if r"\begin" not in text:
        text = _DOUBLED.sub(r"\\", text)
    for needles, pattern, replacement in _REWRITES:
        if any(map(text.__contains__, needles)):
            text = pattern.sub(replacement, text)
    text = text.strip()
    return text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text


def _with_subscripts(match: re.Match[str]) -> str:
    """`\\ce{H2O}` and `H2O` → `H_{2}O`."""
    formula = match[1] if match[1] is not None else match[2]
    if match[1] is None and not re.search(r"\d", formula):
        return match[0]
    return re.sub(r"(?<=[A-Za-z)])(\d+)", r"_{\1}", formula)


def unwrap_text(text: str) -> str:
    """`\\text{east}` → ` east `."""
    return _NESTED_TEXT.sub(r" \1 ", TEXT.sub(r" \1 ", text))


def squeeze(text: str) -> str:
    """Without the spaces that separate nothing: `12 34` keeps its space, `( 1 , 2 )` loses its own."""
    text = re.sub(r"(?<=[A-Za-z])\{\s*(\w)\s*\}", r" \1", text)
    text = re.sub(r"\{\s*(\w)\s*\}|(?<=[\^_])([A-Za-z])(?=[A-Za-z])", lambda m: f"{m[1] or m[2]} ", text)
    return re.sub(r"(?<=\d)\s+(?=\d)|(?<=[^\W\d])\s+(?=[^\W\d])|(\s+)", lambda m: "" if m[1] else " ", text.strip())
