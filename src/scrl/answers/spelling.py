r"""One spelling for what is only typed differently: unicode signs, spacing, styling, currency and percent signs.

`\left( \dfrac{1}{2}\,,\ 50\% \right)` → `( \frac{1}{2} , 50 )`. Degree signs become `°`.
"""

from __future__ import annotations

import re

_SYMBOLS = {
    "−": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∗": "*", "÷": r"\div ",
    "π": r"\pi ", "√": r"\sqrt ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ",
    "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "≈": r"\approx ",
    "½": r"\frac12", "⅓": r"\frac13", "¼": r"\frac14", "⅔": r"\frac23", "¾": r"\frac34", "⁄": "/", "∠": r"\angle ",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "θ": r"\theta ", "λ": r"\lambda ",
    "μ": r"\mu ", "σ": r"\sigma ", "φ": r"\phi ", "ω": r"\omega ", "ℝ": r"\mathbb{R}", "’": "'", "′": "'",
    "€": "", "£": "", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "：": ":", "，": ",", "。": ".",
    "（": "(", "）": ")", "…": "...",
}  # fmt: skip
_FULLWIDTH = {0xFF10 + digit: str(digit) for digit in range(10)}
_UNICODE = str.maketrans(_SYMBOLS) | _FULLWIDTH
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "₀₁₂₃₄₅₆₇₈₉"
_LEVEL = str.maketrans(_RAISED + _LOWERED, "0123456789-" + "0123456789")
_RAISED_RUN, _LOWERED_RUN = re.compile(f"[{_RAISED}]+"), re.compile(f"[{_LOWERED}]+")

_STYLES = (
    "left|right|middle|bigl?|bigr|Bigl?|Bigr|biggl?|biggr|Biggl?|Biggr|displaystyle|textstyle|scriptstyle|limits|"
    "mathbf|boldsymbol|bm|mathit|mathsf|mathtt|mathnormal|bf|rm|it|mathopen|mathclose|mathord|underline|"
    "tiny|small|large|Large|LARGE|huge|Huge"
)
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"(?<=\d)\s*(?:[–—]|--|\\text\s*\{\s*--\s*\})\s*(?=\d)", r" \\endash "),  # 10–20 is a range, and 10--20
        (r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)", r"\1\\endash \2\\endash \3"),
        (r"(\\text\s*\{[^{}]*\d)\s*-\s*(?=\d)", r"\1 \\endash "),
        (r"[–—]", "-"),
        (r"\\\\\s*\[[^\[\]]*\]", r"\\\\ "),  # \\[4pt]
        (r"\\langle((?:(?!\\rangle)[^,])*,(?:(?!\\rangle).)*)\\rangle", r"(\1)"),
        (r"(?<=\d)\s*x\s*(?=10\s*\^)", r"\\times "),
        (r"\{:\}", ":"),
        (r"(?<=\d)\s*(?:\{,\}|,\\!|\\,|\\!|\\ )\s*(?=\d{3}(?!\d))", ""),  # 1{,}000  1,\!000  1\,000
        (rf"\\(?:{_STYLES})(?![A-Za-z])", " "),
        (r"\\(?:textcolor|color)\s*\{[^{}]*\}", " "),
        (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degrees?(?![A-Za-z])", "°"),
        (r"°\s*(?:\\(?:text|mathrm)\s*\{\s*[CF]\s*\}|[CF](?![A-Za-z]))", "°"),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
        (r"(?<!\\)\\(?:[,;:! ]|(?:quad|qquad|hfill)(?![A-Za-z])|hspace\s*\{[^{}]*\})|~|\\\n", " "),
        (r"\\?%|\\?\$|(?<!\\)\\[()\[\]]|\\(?:percent|euro|pounds)(?![A-Za-z])", " "),
        (r"(?<![\w.])(?:np|math|sympy|numpy)\.(?=[a-z])", ""),
        (r"(?<![A-Za-z])([AaPp])\.\s?[Mm]\.?(?![A-Za-z])", r"\1m"),
        (r"\*\*", "^"),
    ]
]
TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|textsf|texttt|mathrm|mbox|hbox|operatorname\*?|emph)\s*\{([^{}]*)\}")


def clean(text: str) -> str:
    """The text without what never changes an answer's meaning."""
    text = _RAISED_RUN.sub(lambda match: f"^{{{match[0].translate(_LEVEL)}}}", text.translate(_UNICODE))
    text = _LOWERED_RUN.sub(lambda match: f"_{{{match[0].translate(_LEVEL)}}}", text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = text.strip()
    return text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text


def unwrap_text(text: str) -> str:
    """`\\text{east}` → ` east `."""
    return TEXT.sub(r" \1 ", text)


def squeeze(text: str) -> str:
    """Without the spaces that separate nothing: `12 34` keeps its space, `( 1 , 2 )` loses its own."""
    return re.sub(r"(?<=\d)\s+(?=\d)|(?<=[^\W\d])\s+(?=[^\W\d])|(\s+)", lambda m: "" if m[1] else " ", text.strip())
