"use strict";
// Votes → labels → rewards: credit/labels.py, credit/rewards.py and the methods scrl, ttrl, contrast and contrast-label, in the same
// arithmetic and the same order, so that every number equals Python's to the last bit. No text is touched here.
//
// A group is {size, counts, seen, missing, entropies, entropy, missing_entropy, elsewhere, stock, right, …}, with one entry a
// class of equal answers in the order of their keys. Credit is {positive, negatives, rewards, missing, isEntropyOnly}:
// `positive` is the place of a class or -1, `negatives` one true or false a class, `missing` what no answer earns.

const SLACK = 1e-12;

/** p₁ ≥ τ_pos and p₁ − p₂ > τ_marg, as counts (eq. 4). */
function isSelected(first, second, size, settings) {
  return first >= settings.min_share * size - SLACK && first - second > settings.min_margin * size + SLACK;
}

/** The two largest counts. */
function topTwo(counts) {
  let first = 0, second = 0;
  for (const count of counts) {
    if (count > first) [first, second] = [count, first];
    else if (count > second) second = count;
  }
  return [first, second];
}

/** The most frequent answer; ties go to the smallest key, or to the answer that was seen first. -1 where there is none. */
function majority(group, ties = "smallest") {
  const most = topTwo(group.counts)[0], smallest = group.counts.indexOf(most);
  if (ties !== "first-seen" || !group.seen) return smallest;
  return group.counts.reduce((best, count, j) => (count === most && group.seen[j] < group.seen[best] ? j : best), smallest);
}

/** y⁺ of SCRL (eq. 4). */
function selectivePositive(group, settings) {
  const [first, second] = topTwo(group.counts);
  return group.counts.length && isSelected(first, second, group.size, settings) ? group.counts.indexOf(first) : -1;
}

/** 𝒩⁻: rare and uncertain answers (eq. 8). */
function gatedNegatives(group, settings) {
  const rare = settings.max_negative_share * group.size - SLACK, uncertain = group.entropy - SLACK;
  return group.counts.map((count, j) => count < rare && group.entropies[j] >= uncertain);
}

function isConstant(values) {
  return Math.max(...values) - Math.min(...values) <= SLACK;
}

const METHODS = {
  scrl: {
    lacks: (groups) => (groups.some((group) => group.entropies === null) ? "an entropy for every completion" : null),
    credit(group, settings) {
      const positive = selectivePositive(group, settings), limit = settings.max_negative_share;
      const negatives = gatedNegatives(group, settings).map((is, j) => is && j !== positive);
      const choice = settings.missing_reward, weight = settings.entropy_weight;
      const labelPart = group.counts.map((count, j) => {
        const share = count / group.size;
        return share * (j === positive) + (share - limit) * negatives[j];
      });
      let missing = choice === "negative" ? -limit : typeof choice === "string" ? 0 : choice;
      let rewards = labelPart;
      const labelMissing = missing;
      if (weight) {
        rewards = labelPart.map((part, j) => part + -weight * (group.entropies[j] - group.entropy));
        if (choice === "entropy" && group.missing) missing += -weight * (group.missing_entropy - group.entropy);
      }
      const all = (values, none) => (group.missing ? [...values, none] : values);
      const isEntropyOnly = isConstant(all(labelPart, labelMissing)) && !isConstant(all(rewards, missing));
      return { positive, negatives, rewards, missing, isEntropyOnly };
    },
  },
  ttrl: {
    lacks: () => null,
    credit(group, settings) {
      const positive = majority(group, settings.ties);
      const rewards = group.counts.map((_, j) => Number(j === positive));
      return { positive, negatives: group.counts.map(() => false), rewards, missing: 0, isEntropyOnly: false };
    },
  },
  contrast: {
    lacks: (groups) => (groups.length < 2 ? "more than one question" : null),
    credit(group, settings) {
      const rewards = group.counts.map(
        (count, j) => count / group.size - settings.elsewhere_weight * (group.elsewhere ? group.elsewhere[j] : 0),
      );
      const missing = (rewards.length ? Math.min(...rewards) : 0) - settings.missing_gap;
      return { positive: -1, negatives: group.counts.map(() => false), rewards, missing, isEntropyOnly: false };
    },
  },
  "contrast-label": {
    lacks: (groups) => METHODS.contrast.lacks(groups),
    credit(group, settings) {
      const contrasts = METHODS.contrast.credit(group, settings).rewards, best = Math.max(...contrasts);
      const positive = best >= settings.min_contrast - SLACK ? contrasts.indexOf(best) : -1;
      const rewards = group.counts.map((_, j) => Number(j === positive));
      return { positive, negatives: group.counts.map(() => false), rewards, missing: 0, isEntropyOnly: false };
    },
  },
};

/** The answer that a credit favours: its label, or without labels the one that earns most. */
function favoured(method, credit) {
  return method === "contrast" ? credit.rewards.indexOf(Math.max(...credit.rewards)) : credit.positive;
}

/** cov(Â, right): how an update moves the share of right completions, to first order; Â = (R − μ) / (σ + 10⁻⁶). */
function pushRight(group, credit) {
  const rewards = [...credit.rewards, credit.missing], counts = [...group.counts, group.missing];
  const mean = (value) => counts.reduce((sum, count, j) => sum + (count ? count * value(j) : 0), 0) / group.size;
  const mu = mean((j) => rewards[j]);
  const sigma = Math.sqrt(mean((j) => (rewards[j] - mu) ** 2));
  if (sigma < SLACK || group.right < 0) return 0;
  const share = group.counts[group.right] / group.size;
  return mean((j) => ((rewards[j] - mu) / (sigma + 1e-6)) * ((j === group.right) - share));
}

/** What one setting makes of all groups: the counts of `scrl label`, and two means. */
function figuresOf(method, groups, credits) {
  const found = {
    questions: groups.length, labelled: 0, negatives: 0, entropyOnly: 0, checked: 0, right: 0, negativesChecked: 0,
    negativesWrong: 0, truthFlagged: 0, hasTruth: 0, stockKnown: 0, stockLabel: 0, graded: 0, push: 0,
    rewardRight: 0, numRight: 0, rewardWrong: 0, numWrong: 0,
  };
  groups.forEach((group, place) => {
    const credit = credits[place], answer = favoured(method, credit), isLabelled = answer >= 0;
    const numNegatives = credit.negatives.filter(Boolean).length;
    found.labelled += isLabelled;
    found.negatives += numNegatives;
    found.entropyOnly += credit.isEntropyOnly;
    found.stockKnown += isLabelled && group.stock !== null;
    found.stockLabel += isLabelled && group.stock !== null && group.stock.includes(answer);
    if (group.right === null) return;
    found.graded += 1;
    found.checked += isLabelled;
    found.right += isLabelled && answer === group.right;
    found.negativesChecked += numNegatives;
    found.negativesWrong += numNegatives - (group.right >= 0 && credit.negatives[group.right]);
    found.truthFlagged += group.right >= 0 && credit.negatives[group.right];
    found.hasTruth += group.right >= 0;
    found.push += pushRight(group, credit);
    credit.rewards.forEach((reward, j) => {
      const which = j === group.right ? "Right" : "Wrong";
      found[`reward${which}`] += reward * group.counts[j];
      found[`num${which}`] += group.counts[j];
    });
    found.rewardWrong += credit.missing * group.missing;
    found.numWrong += group.missing;
  });
  return found;
}
