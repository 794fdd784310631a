// The page: where consensus lied, and the explorer. Foreign text is set as text, never as markup.

const DATA = JSON.parse(document.getElementById("data").textContent);
const SETTINGS_OF = {
  scrl: ["min_share", "min_margin", "max_negative_share", "entropy_weight"],
  ttrl: [],
  contrast: ["elsewhere_weight"],
  "contrast-label": ["elsewhere_weight", "min_contrast"],
};
const ROWS_AT_ONCE = 100, NUM_LIES = 6;
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);

/** An element with attributes and children; strings become text. */
function el(tag, attributes = {}, ...children) {
  const isDrawing = ["svg", "rect", "title", "g"].includes(tag);
  const element = isDrawing ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}\u202f%`;
const ratio = (part, whole) => (whole ? percent(part / whole, 1) : "–");
const signed = (value, digits = 3) => {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : value < 0 ? text.replace("-", "−") : `+${text}`;
};
const counted = (number, thing) => `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;
const dot = (look) => el("i", { class: `dot ${look}`, "aria-hidden": "true" });

// Votes as bars

/** The colour of a named answer: what is known of it, paler by rank. */
function looksOf(shown) {
  let rank = 0;
  const other = shown.last.right === null ? "unknown" : "wrong";
  return shown.named.map((_, place) => (shown.right[place] ? "right" : `${other} r${rank++}`));
}

function barWords(bar, shown) {
  const counts = bar.slice(1, -2).map((count, place) => [count, `${count} × ${shown.named[place]}`]);
  const parts = counts.filter(([count]) => count).sort((a, b) => b[0] - a[0]).map(([, words]) => words);
  const rest = bar.at(-2) ? [`${bar.at(-2)} others`] : [], none = bar.at(-1) ? [`${bar.at(-1)} without an answer`] : [];
  return `${shown.visits > 1 ? `step ${bar[0]}: ` : ""}${[...parts, ...rest, ...none].join(", ")}`;
}

/** [votes, colour] of the parts of a bar: right first, then by rank, others, none. */
function parts(bar, shown) {
  const looks = looksOf(shown);
  const named = looks.map((look, place) => [bar[place + 1], look]);
  named.sort((a, b) => (b[1] === "right") - (a[1] === "right"));
  return [...named, [bar.at(-2), "rest"], [bar.at(-1), "none"]].filter(([count]) => count);
}

/** One bar a visit. */
function votesOverTime(shown) {
  const width = 10 * shown.bars.length;
  const label = shown.bars.length > 1
    ? `Votes over ${shown.visits} visits: first ${barWords(shown.bars[0], shown)}; last ${barWords(shown.bars.at(-1), shown)}`
    : `Votes, ${barWords(shown.bars[0], shown)}`;
  const svg = el("svg", { class: "votes", viewBox: `0 0 ${width} 100`, preserveAspectRatio: "none", role: "img",
                          "aria-label": label, style: `max-width: ${Math.max(3, 1.6 * shown.bars.length)}rem` });
  shown.bars.forEach((bar, place) => {
    const total = bar.slice(1).reduce((sum, count) => sum + count, 0), g = el("g", {}, el("title", {}, barWords(bar, shown)));
    let top = 100;
    for (const [count, look] of parts(bar, shown)) {
      top -= (100 * count) / total;
      g.append(el("rect", { class: look, x: 10 * place, y: top.toFixed(2), width: 8.6, height: ((100 * count) / total).toFixed(2) }));
    }
    svg.append(g);
  });
  const ends = [shown.bars[0][0], shown.bars.at(-1)[0]], drawn = shown.bars.length < shown.visits ? `, ${shown.bars.length} drawn` : "";
  const words = shown.visits > 1 ? `step ${ends[0]} to ${ends[1]}, ${shown.visits} visits${drawn}` : ends[0] ? `step ${ends[0]}` : "";
  return el("div", { class: "over-time" }, svg, el("p", { class: "note" }, words));
}

/** One visit as a strip. */
function strip(bar, shown) {
  const parted = parts(bar, shown).map(([count, look]) => el("i", { class: look, style: `flex-grow: ${count}` }));
  return el("span", { class: "strip", title: barWords(bar, shown), "aria-hidden": "true" }, ...parted);
}

// Where consensus lied

const shares = (group) => topTwo(group.counts).map((count) => count / group.size);
const isWrong = (group) => group.right !== null && group.counts.length > 0 && group.counts[group.right] !== topTwo(group.counts)[0];
const isTied = (group) => group.right !== null && group.right >= 0 && !isWrong(group) && topTwo(group.counts)[1] === group.counts[group.right];
const answerOf = (group) => (group.counts.length ? group.keys[majority(group)] : null);
const hasMoved = (shown) => shown.first !== null && answerOf(shown.first) !== answerOf(shown.last);

function lieWords(source, shown) {
  const { first, last } = shown, j = majority(last), name = DATA.sources.length > 1 ? [el("b", {}, source.name), ": "] : [];
  if (j < 0) return el("p", {}, ...name, "no completion has an answer.");
  const votes = (group, key) => (group.keys.includes(key) ? group.counts[group.keys.indexOf(key)] : 0);
  const change = (key) => `${shown.visits > 1 ? `${votes(first, key)} → ` : ""}${votes(last, key)} of ${last.size} votes for `;
  const words = [...name, change(last.keys[j]), el("code", {}, last.keys[j])];
  if (last.labels[j] === 1) words.push(" ", el("span", { class: "chip" }, "labelled"));
  const right = last.right === null ? null : shown.named.find((_, place) => shown.right[place]);
  if (right === undefined) words.push("; the right answer was never given");
  else if (right === last.keys[j]) words.push(", which is right");
  else if (right !== null) words.push(`; ${change(right)}`, el("code", {}, right), ", which is right");
  return el("p", {}, ...words, ".");
}

function showLies(isGraded) {
  const views = DATA.questions.map((_, place) => DATA.sources.map((source) => source.groups[place]));
  const weight = (shown) => !shown ? 0 : isGraded ? (isWrong(shown.last) ? shares(shown.last)[0] : 0) : hasMoved(shown) ? shares(shown.last)[0] : 0;
  const weights = views.map((shown) => Math.max(...shown.map(weight)));
  const places = [...views.keys()].filter((place) => weights[place] > 0).sort((a, b) => weights[b] - weights[a] || a - b);
  if (!DATA.questions.length) return;
  const total = counted(DATA.questions.length, "question");
  $("lies-title").textContent = isGraded ? "Where consensus lied" : "Where consensus moved";
  const whose = DATA.sources.length > 1 ? " in some run" : "";
  const isFollowed = views.some((shown) => shown.some((each) => each && each.visits > 1));
  const wrong = `the most frequent answer is wrong${isFollowed ? " at the end" : ""}`;
  const what = `${isGraded ? wrong : "the most frequent answer changed"}${whose}`;
  const others = isGraded ? "The most agreed lies come first" : "The most agreed come first";
  const numTied = isGraded ? views.filter((shown) => shown.some((each) => each && isTied(each.last))).length : 0;
  const tied = numTied ? ` On ${numTied.toLocaleString("en")} it is tied with the right one.` : "";
  $("lies-lead").textContent = places.length
    ? `On ${places.length.toLocaleString("en")} of ${total} ${what}.${tied} ${others}${isFollowed ? "; one bar a visit" : ""}.`
    : `On none of ${total} ${isGraded ? what : `did the most frequent answer change${whose}`}.${tied}`;
  $("lies-list").replaceChildren(...places.slice(0, NUM_LIES).map((place) => {
    const seen = DATA.sources.map((source, at) => [source, views[place][at]]).filter(([, shown]) => shown);
    return el("article", { class: "lie" }, questionText(place),
      el("div", { class: "sides" }, ...seen.map(([source, shown]) => el("div", {}, lieWords(source, shown), votesOverTime(shown)))));
  }));
  if (places.length > NUM_LIES) {
    const all = el("button", { type: "button" }, `All ${places.length.toLocaleString("en")} in the explorer`);
    all.addEventListener("click", () => {
      $("filter").value = isGraded ? "wrong" : "moved";
      list();
      $("questions").scrollIntoView();
      $("filter").focus({ preventScroll: true });
    });
    $("lies-list").append(all);
  }
}

function questionText(place) {
  const question = DATA.questions[place];
  return el("h3", {}, question.text || question.id, " ", el("small", {}, question.text ? question.id : ""));
}

// The explorer

const state = { source: 0, visit: "last", method: "scrl", settings: {}, shown: ROWS_AT_ONCE };
let items = []; // {place, shown, group, credit, start}: the questions of the source that is looked at
const rows = new Map(); // place → its row, while that is on the page

const NEED_GOLD = ["lie", "wrong"];
const FILTERS = {
  all: ["all questions", () => true],
  gains: ["that gain a label", (item) => answer(item) !== -1 && answer(item) !== item.start],
  loses: ["that lose their label", (item) => item.start !== -1 && answer(item) !== item.start],
  labelled: ["with a label", (item) => answer(item) >= 0],
  unlabelled: ["without a label", (item) => answer(item) < 0],
  lie: ["whose label is wrong", (item) => item.group.right !== null && answer(item) >= 0 && answer(item) !== item.group.right],
  wrong: ["whose majority is wrong", (item) => isWrong(item.group)],
  moved: ["whose majority changed", (item) => hasMoved(item.shown)],
};
const ORDERS = {
  number: ["by id", () => 0],
  agreed: ["most agreed first", (a, b) => shares(b.group)[0] - shares(a.group)[0]],
  split: ["least agreed first", (a, b) => shares(a.group)[0] - shares(b.group)[0]],
  close: ["closest race first", (a, b) => margin(a.group) - margin(b.group)],
  uncertain: ["highest entropy first", (a, b) => (b.group.entropy ?? 0) - (a.group.entropy ?? 0)],
  changed: ["changed labels first", (a, b) => (answer(b) !== b.start) - (answer(a) !== a.start)],
};
const margin = (group) => { const [first, second] = shares(group); return first - second; };
const answer = (item) => favoured(state.method, item.credit);
const barOf = (item) => item.shown.bars.at(state.visit === "first" ? 0 : -1);

/** Take the questions of a source at one of its visits, and what the start values make of them. */
function load() {
  const source = DATA.sources[state.source];
  items = source.groups.map((shown, place) => ({ shown, place })).filter((item) => item.shown);
  for (const item of items) item.group = (state.visit === "first" && item.shown.first) || item.shown.last;
  const groups = items.map((item) => item.group);
  const reasons = Object.entries(METHODS).map(([name, method]) => [name, method.lacks(groups)]).filter(([, reason]) => reason);
  for (const input of document.querySelectorAll("[name=method]")) input.disabled = reasons.some(([name]) => name === input.value);
  $("refused").textContent = reasons.map(([name, reason]) => `${name} needs ${reason}.`).join(" ")
    + (source.is_estimate ? " Entropies are estimates from log-probabilities." : "");
  if (reasons.some(([name]) => name === state.method)) state.method = "ttrl";
  document.querySelector(`[name=method][value=${state.method}]`).checked = true;
  start();
}

/** Compare with the start values from here on. */
function start() {
  const source = DATA.sources[state.source];
  for (const item of items) item.start = favoured(state.method, METHODS[state.method].credit(item.group, source.settings));
  for (const box of document.querySelectorAll("[data-setting]")) box.hidden = !SETTINGS_OF[state.method].includes(box.dataset.setting);
  $("no-sliders").hidden = SETTINGS_OF[state.method].length > 0;
  $("reset").hidden = !SETTINGS_OF[state.method].length;
  recompute();
  list();
}

/** Labels, rewards and figures at the present settings; returns the figures. */
function recompute() {
  for (const item of items) item.credit = METHODS[state.method].credit(item.group, state.settings);
  const figures = figuresOf(state.method, items.map((item) => item.group), items.map((item) => item.credit));
  figures.gained = items.filter(FILTERS.gains[1]).length;
  figures.lost = items.filter(FILTERS.loses[1]).length;
  showFigures(figures);
  for (const [place, row] of rows) row.update(place);
  return figures;
}

function showFigures(found) {
  const isLabels = state.method !== "contrast", what = isLabels ? "label" : "best-paid answer";
  const gain = `${counted(found.gained, "question")} ${found.gained === 1 ? "gains" : "gain"} one and ${found.lost} ${found.lost === 1 ? "loses" : "lose"} one`;
  const isStart = !found.gained && !found.lost;
  $("summary").textContent = isLabels
    ? `${found.labelled.toLocaleString("en")} of ${counted(found.questions, "question")} have a label${isStart ? ", the same as at the start values." : `. Against the start values ${gain}.`}`
    : isStart ? "The same answers earn most as at the start values." : `On ${counted(found.gained, "question")} another answer earns most than at the start values.`;
  const cells = [
    isLabels ? ["labels", ratio(found.labelled, found.questions), `${found.labelled} of ${found.questions}`] : null,
    found.graded ? [`${what} right`, ratio(found.right, found.checked), `${found.right} of ${found.checked}`] : null,
    state.method === "scrl" ? ["ruled out", found.negatives.toLocaleString("en"), found.graded ? `${ratio(found.negativesWrong, found.negativesChecked)} wrong` : ""] : null,
    state.method === "scrl" && found.graded ? ["right answer ruled out", ratio(found.truthFlagged, found.hasTruth), `${found.truthFlagged} of ${found.hasTruth}`] : null,
    found.stockKnown ? ["stock answers", ratio(found.stockLabel, found.stockKnown), `of ${what}s`] : null,
    state.method === "scrl" ? ["entropy alone decides", ratio(found.entropyOnly, found.questions), `${found.entropyOnly} of ${found.questions}`] : null,
    found.graded ? ["mean reward", signed(found.numRight ? found.rewardRight / found.numRight : 0), `right; wrong ${signed(found.numWrong ? found.rewardWrong / found.numWrong : 0)}`] : null,
    found.graded ? ["push to right", signed((1000 * found.push) / found.graded, 0), "cov(Â, right) × 1,000"] : null,
  ];
  $("figures").replaceChildren(...cells.filter(Boolean).map(([name, value, detail]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, detail)))));
}

/** The questions that are searched and filtered for, in order; rows are made for the first of them. */
function list() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const texts = (item) => [DATA.questions[item.place].id, DATA.questions[item.place].text, ...item.group.keys].join("\n").toLowerCase();
  const found = items.filter((item) => FILTERS[$("filter").value][1](item) && (!words.length || words.every((word) => texts(item).includes(word))));
  found.sort(ORDERS[$("order").value][1]);
  const open = [...rows].filter(([, row]) => row.details.open).map(([place]) => place);
  rows.clear();
  for (const item of found.slice(0, state.shown)) rows.set(item.place, makeRow(item, open.includes(item.place)));
  $("questions").replaceChildren(...[...rows.values()].map((row) => row.element));
  const left = found.length - rows.size;
  $("shown").textContent = `${counted(found.length, "question")}${found.length < items.length ? ` of ${items.length.toLocaleString("en")}` : ""}`;
  $("more").hidden = left <= 0;
  $("more").textContent = `Show ${Math.min(left, ROWS_AT_ONCE)} more of ${left.toLocaleString("en")}`;
}

function makeRow(item, isOpen) {
  const question = DATA.questions[item.place], label = el("span", { class: "label" }), body = el("div", { class: "body" });
  const share = el("span", { class: "share" }, percent(shares(item.group)[0]), el("span", { class: "unseen" }, " agree"));
  const name = el("span", { class: "name" }, question.text || question.id);
  const details = el("details", { open: isOpen }, el("summary", {}, name, strip(barOf(item), item.shown), share, label), body);
  let answers = null, last = null; // what the row shows: rows that stay the same are left alone
  const fill = () => {
    answers = el("div", {});
    body.replaceChildren(...bodyOf(item, answers));
    answers.replaceChildren(answersTable(item));
  };
  const update = () => {
    const now = `${state.method} ${answer(item)}`;
    if (now !== last) label.replaceChildren(...labelWords(item));
    last = now;
    if (answers && details.open) answers.replaceChildren(answersTable(item));
  };
  details.addEventListener("toggle", () => details.open && fill());
  if (isOpen) fill();
  update();
  return { element: el("li", {}, details), details, update };
}

/** What the setting makes of a question, and whether the start values made the same. */
function labelWords(item) {
  const now = answer(item), { keys, right } = item.group;
  const truth = right === null ? [] : [el("span", { class: now === right ? "good" : "bad" }, now === right ? "✓ right" : "✗ wrong"), " "];
  const words = now < 0 ? [el("span", { class: "soft" }, "no label")] : [...truth, el("code", {}, keys[now])];
  if (now === item.start) return words;
  return [el("b", { class: "chip" }, item.start < 0 ? "gains" : now < 0 ? "loses" : "changes"), " ", ...words];
}

function bodyOf(item, answers) {
  const question = DATA.questions[item.place], { shown } = item;
  const gold = question.gold === null ? "gold: not given" : ["gold: ", el("code", {}, question.gold)];
  const excerpts = shown.excerpts.map((found) => el("details", { class: "excerpt" },
    el("summary", {}, found.answer === null ? "A completion without an answer" : "A completion with the answer ", found.answer === null ? "" : el("code", {}, found.answer)),
    el("p", { class: "note" }, found.facts), el("pre", {}, found.text)));
  return [
    question.text ? el("p", { class: "text" }, question.text) : null,
    el("p", { class: "note" }, `${question.id} · `, ...[gold].flat()),
    shown.bars.length > 1 ? votesOverTime(shown) : null, answers, ...excerpts,
  ].filter(Boolean);
}

/** Every answer with its votes and what it earns. */
function answersTable(item) {
  const { group, credit, shown } = item, looks = looksOf(shown);
  const order = [...group.counts.keys()].sort((a, b) => group.counts[b] - group.counts[a] || a - b);
  const look = (j) => (j === group.right ? "right" : looks[shown.named.indexOf(group.keys[j])] ?? "rest");
  const word = (j) => (j === favoured(state.method, credit) ? (state.method === "contrast" ? "earns most" : "label") : credit.negatives[j] ? "ruled out" : "");
  const row = (name, colour, count, entropy, elsewhere, label, reward) => el("tr", {}, el("th", { scope: "row" }, dot(colour), name),
    el("td", {}, `${count}`), el("td", {}, entropy), el("td", {}, elsewhere), el("td", {}, label), el("td", {}, signed(reward)));
  const body = order.map((j) => row(el("code", {}, group.keys[j]), look(j), group.counts[j],
    group.entropies ? group.entropies[j].toFixed(2) : "–", group.elsewhere ? percent(group.elsewhere[j]) : "–",
    word(j), credit.rewards[j]));
  if (group.missing) {
    body.push(row("no answer", "none", group.missing, group.missing_entropy === null ? "–" : group.missing_entropy.toFixed(2), "–", "", credit.missing));
  }
  const heads = [["answer", ""], ["votes", `of ${group.size}`], ["H̄", "mean entropy"], ["p̄", "mean share over the other questions"], ["", ""], ["reward", ""]];
  return el("table", { class: "numbers" },
    el("thead", {}, el("tr", {}, ...heads.map(([name, title]) => el(name ? "th" : "td", { scope: name ? "col" : null, title: title || null }, name)))),
    el("tbody", {}, ...body));
}

// Controls

function showSettings() {
  for (const box of document.querySelectorAll("[data-setting]")) {
    const value = state.settings[box.dataset.setting], input = box.querySelector("input");
    input.max = Math.max(input.max, value);
    input.value = value;
    box.querySelector("output").textContent = String(Number(value.toFixed(4)));
  }
}

function takeSource(place) {
  const source = DATA.sources[place];
  Object.assign(state, { source: place, settings: { ...source.settings }, method: source.method ?? "scrl" });
  const hasFirst = source.groups.some((shown) => shown && shown.first);
  $("visit-label").hidden = !hasFirst;
  if (!hasFirst) state.visit = $("visit").value = "last";
  showSettings();
  load();
}

let isWaiting = false;
function later(act) { // at most once a frame
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(() => { isWaiting = false; act(); });
}

function begin() {
  const isGraded = DATA.sources.some((source) => source.groups.some((shown) => shown && shown.last.right !== null));
  for (const [id, choices] of [["filter", FILTERS], ["order", ORDERS]]) {
    const known = Object.entries(choices).filter(([value]) => isGraded || !NEED_GOLD.includes(value));
    $(id).append(...known.map(([value, [words]]) => el("option", { value }, words)));
  }
  $("source").append(...DATA.sources.map((source, place) => el("option", { value: place }, source.name)));
  $("source-label").hidden = DATA.sources.length < 2;
  $("source").addEventListener("change", () => takeSource(Number($("source").value)));
  $("visit").addEventListener("change", () => { state.visit = $("visit").value; load(); });
  for (const input of document.querySelectorAll("[name=method]")) {
    input.addEventListener("change", () => { state.method = input.value; start(); });
  }
  for (const box of document.querySelectorAll("[data-setting]")) {
    const input = box.querySelector("input");
    input.addEventListener("input", () => {
      state.settings[box.dataset.setting] = Number(input.value);
      box.querySelector("output").textContent = input.value;
      later(recompute);
    });
    input.addEventListener("change", () => ["all", "wrong", "moved"].includes($("filter").value) || list());
  }
  $("reset").addEventListener("click", () => {
    state.settings = { ...DATA.sources[state.source].settings };
    showSettings();
    recompute();
    list();
  });
  const relist = () => { state.shown = ROWS_AT_ONCE; list(); };
  $("search").addEventListener("input", () => later(relist));
  for (const id of ["filter", "order"]) $(id).addEventListener("change", relist);
  $("more").addEventListener("click", () => { state.shown += ROWS_AT_ONCE; list(); });
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  showLies(isGraded);
  if (DATA.questions.length) takeSource(0);
  else document.querySelector(".explorer").hidden = true;
}

begin();
