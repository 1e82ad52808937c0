"use strict";
// The page of `lmtool export to=play.html`: a model's formulas, named as in lmtool's Python, and what the page shows.
// ids are numbers of words, the last of which, bos, is <s>; log p is natural. Words are shown as text nodes alone.
const about = JSON.parse(document.getElementById("about").textContent);
const { bos, eos, unk } = about; // unk: null in a closed vocabulary, where an unknown word has no probability

// Arrays. The element "arrays" is base64 of gzip of all arrays of about.arrays, one after the other. The bytes of a
// number lie apart (all first bytes, then all second ones, ...), which gzip packs better. A type is u, i or f and the
// bytes of a number; f2 is float16, i1 a matrix of int8 whose row r is multiplied by NAME.row_scale[r].
const TYPES = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i1: Int8Array, i4: Int32Array, f4: Float32Array };

function half(bits) { // the value of a float16
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : fraction * 2 ** -24);
}

async function readArrays() {
  const packed = Uint8Array.from(atob(document.getElementById("arrays").textContent), (c) => c.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(unpacked).arrayBuffer()), arrays = {};
  let at = 0;
  for (const [name, type, shape] of about.arrays) {
    const count = shape.reduce((a, b) => a * b, 1), size = Number(type[1]), mixed = new Uint8Array(count * size);
    for (let b = 0; b < size; b++) for (let i = 0; i < count; i++) mixed[i * size + b] = bytes[at++];
    const values = new (TYPES[type] ?? Uint16Array)(mixed.buffer);
    arrays[name] = type === "f2" ? Float32Array.from(values, half) : values;
    arrays[name].shape = shape;
    const scaled = name.replace(".row_scale", ""), matrix = arrays[scaled]; // the scales follow their matrix
    if (scaled === name) continue;
    arrays[scaled] = Float32Array.from(matrix, (value, k) => value * values[Math.floor((k * count) / matrix.length)]);
    arrays[scaled].shape = matrix.shape;
  }
  for (const [name, first] of Object.entries(about.tied)) arrays[name] = arrays[first];
  return arrays;
}

// Vectors and matrices; a matrix is stored by rows.
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const logSigmoid = (x) => (x < 0 ? x - Math.log1p(Math.exp(x)) : -Math.log1p(Math.exp(-x)));
const vector = (size, value) => Float64Array.from({ length: size }, (_, k) => value(k));
const sumOf = (values) => values.reduce((a, b) => a + b, 0);
const logSoftmax = (s, logZ = logSumExp(s)) => s.map((score) => score - logZ);

function linear(x, weight, bias) { // W x + b
  return vector(bias ? bias.length : weight.shape[0], (r) => {
    let sum = bias ? bias[r] : 0;
    for (let c = 0, k = r * x.length; c < x.length; c++) sum += weight[k + c] * x[c];
    return sum;
  });
}

function logSumExp(values) {
  const largest = values.reduce((a, b) => Math.max(a, b), -Infinity);
  return largest === -Infinity ? largest : largest + Math.log(values.reduce((a, b) => a + Math.exp(b - largest), 0));
}

function layerNorm(z, weight, bias) {
  const mean = sumOf(z) / z.length, variance = sumOf(z.map((v) => (v - mean) ** 2)) / z.length;
  return z.map((v, i) => ((v - mean) / Math.sqrt(variance + 1e-5)) * weight[i] + bias[i]);
}

function gelu(x) { // x Phi(x), by the sum over n of x^(2n+1) / (1 3 5 ... (2n+1))
  if (Math.abs(x) > 9) return Math.max(0, x);
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) sum += term *= (x * x) / (2 * n + 1);
  return x * (0.5 + (Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI)) * sum);
}

const FUNCTIONS = { tanh: Math.tanh, sigmoid, relu: (x) => Math.max(0, x), gelu };

// n-grams: a trie in back-off form. Node g below V is the word g; the nodes of order k + 1 follow those of order k, and
// node i has the children starts[i] to starts[i + 1] - 1, whose last words, words[node - V], ascend. Above order 1 a
// value is levels[order - 2, codes[node - V]].
const SHORT = -1, UNSEEN = -2; // instead of a node: the sentence has no context of this length; the model lacks it

function ngramModel({ children, words, ...a }) {
  const V = a.unigrams.length, starts = new Uint32Array(children.length + 1).fill(V, 0, 1);
  children.forEach((count, i) => { starts[i + 1] = starts[i] + count; });
  const valueOf = (order, node, unigrams, levels, codes) =>
    order === 1 ? unigrams[node] : levels[(order - 2 << about.bits) + codes[node - V]];
  const logProb = (order, node) => valueOf(order, node, a.unigrams, a.levels, a.codes);
  const logBackoff = (order, node) => valueOf(order, node, a.backoff_unigrams, a.backoff_levels, a.backoff_codes);
  function child(node, word) {
    if (node < 0) return UNSEEN;
    let low = starts[node], high = starts[node + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (words[middle - V] < word) low = middle + 1; else high = middle;
    }
    return low < starts[node + 1] && words[low - V] === word ? low : UNSEEN;
  }
  function contextNodes(context) { // of its last 1, 2, ... n - 1 words
    const suffix = (m) => context.slice(context.length - m);
    return Array.from({ length: about.order - 1 }, (_, m) =>
      m >= context.length ? SHORT : suffix(m + 1).reduce((node, word, i) => (i ? child(node, word) : word), 0));
  }
  const weight = (m, node) => (node >= 0 ? logBackoff(m, node) : node === UNSEEN ? a.missing[0] : 0); // log, of m words
  return {
    context: (ids) => ids.slice(Math.max(0, ids.length - about.order + 1)),
    logDist(context) { // log p of all words, [V]
      const nodes = contextNodes(context), longer = new Float64Array(about.order + 1);
      for (let m = about.order - 1; m > 0; m--) longer[m] = longer[m + 1] + weight(m, nodes[m - 1]);
      const dist = vector(V, (word) => a.unigrams[word] + longer[1]);
      nodes.forEach((node, i) => {
        for (let c = starts[node]; c < starts[node + 1]; c++) dist[words[c - V]] = logProb(i + 2, c) + longer[i + 2];
      });
      return dist;
    },
    explain(context, word) { // p: the weights of the contexts that the word never followed, times the p of an n-gram
      const nodes = contextNodes(context), rows = [], factors = [];
      for (let m = Math.min(about.order - 1, context.length), found = false; !found; m--) {
        const node = m ? child(nodes[m - 1], word) : word, ngram = [...context.slice(context.length - m), word];
        found = node >= 0;
        factors.push(Math.exp(found ? logProb(m + 1, node) : weight(m, nodes[m - 1])));
        const backoff = `${nodes[m - 1] < 0 ? "context not found" : "not found"}: back-off ${m}`;
        rows.push([m + 1, ngram.map(shown).join(" "), found ? "found: stored p" : backoff, factors.at(-1)]);
      }
      return { order: rows.at(-1)[0], parts: [{ header: ["order", "n-gram", "in the model", "p"], rows, factors }] };
    },
  };
}

// Networks: an encoder from the embeddings x of a context, oldest word first, to h; an output layer from h to log p.
const ENCODERS = {
  cbow: (x) => vector(x[0].length, (e) => sumOf(x.map((row) => row[e])) / x.length),
  lbl(x, w) { // C_i: [C, E], diagonal, or [C, E, E]
    const C = w["encoder.positions"], E = x[0].length, full = C.shape.length > 2;
    const part = (row, i, e) => (full ? sumOf(row.map((r, k) => r * C[(i * E + k) * E + e])) : row[e] * C[i * E + e]);
    return vector(E, (e) => sumOf(x.map((row, i) => part(row, i, e))));
  },
  nplm(x, w, config) {
    const norm = (z, name) => (`${name}.weight` in w ? layerNorm(z, w[`${name}.weight`], w[`${name}.bias`]) : z);
    const input = Float64Array.from([...x.slice(-config.context_size), ...history(x, w)].flatMap((row) => [...row]));
    let a = input;
    for (let k = 0; k < config.layers; k++) {
      const z = linear(a, w[`encoder.layers.${k}.weight`], w[`encoder.layers.${k}.bias`]), H = config.hidden_dim;
      const units = norm(z.slice(0, H), `encoder.norms.${k}`).map(FUNCTIONS[config.activation]);
      const gate = config.gated ? norm(z.slice(H), `encoder.gate_norms.${k}`) : units.map(() => 1);
      a = units.map((unit, i) => unit * gate[i] + (k ? a[i] : 0));
    }
    if (config.direct_connections && config.layers) a = Float64Array.from([...a, ...input]);
    return "encoder.project.weight" in w ? linear(a, w["encoder.project.weight"], w["encoder.project.bias"]) : a;
  },
  lstm(x, w, config) { // each layer reads all words; the gates' rows are in torch's order: i, f, g, o, or r, z, n
    for (let k = 0; `encoder.cells.${k}.weight_ih_l0` in w; k++) {
      const [W, U, b, d] = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"].map((n) => w[`encoder.cells.${k}.${n}_l0`]);
      const H = U.shape[1];
      let h = new Float64Array(H), c = h;
      x = x.map((row) => {
        const p = linear(row, W, b), q = linear(h, U, d), gate = (g, i) => sigmoid(p[g * H + i] + q[g * H + i]);
        if (config.cell === "rnn") return (h = p.map((value, i) => Math.tanh(value + q[i])));
        if (config.cell === "lstm") {
          c = c.map((old, i) => gate(1, i) * old + gate(0, i) * Math.tanh(p[2 * H + i] + q[2 * H + i]));
          return (h = c.map((value, i) => gate(3, i) * Math.tanh(value)));
        }
        const n = h.map((_, i) => Math.tanh(p[2 * H + i] + gate(0, i) * q[2 * H + i]));
        return (h = h.map((old, i) => (1 - gate(1, i)) * n[i] + gate(1, i) * old));
      });
    }
    return x.at(-1);
  },
};

function history(x, w) { // the sums z_k over all words of x, in which older words count less
  const v = w["encoder.history.weights"], scale = w["encoder.history.scale"], [T, E] = [x.length, x[0].length];
  const sum = (k, e) => scale[k * E + e] * sumOf(x.map((row, t) => v[k * T + t] * row[e]));
  return Array.from({ length: v ? v.shape[0] : 0 }, (_, k) => vector(E, (e) => sum(k, e)));
}

const OUTPUTS = { // log p of all words but <s>, [O], and the parts that explain one of them
  softmax(w) {
    const scores = (h) => linear(h, w["output.vectors"], w["output.bias"]);
    const header = ["softmax: log p = s - log Z", "value"], logZ = "log Z, Z the sum of exp(s) over all words";
    const rows = (s, word) => [["score s = b + u · h", s[word]], [logZ, logSumExp(s)]];
    const explain = (h, word) => [{ header, rows: rows(scores(h), word) }];
    return { logDist: (h) => logSoftmax(scores(h)), explain };
  },
  hierarchical(w) { // children [N, 2]: an inner node if 0 or more, else leaf -1 - child; leaf_words [L]
    const children = w["tree.children"], leafWords = w["tree.leaf_words"], L = leafWords.length, N = L - 1;
    const place = (n, b) => (children[2 * n + b] < 0 ? N - 1 - children[2 * n + b] : children[2 * n + b]);
    const parent = new Int32Array(N + L).fill(-1), bit = new Uint8Array(N + L); // of the inner nodes, then the leaves
    const below = [...new Array(N), ...Array.from(leafWords, (word) => [word])]; // the three most frequent words
    for (let n = N - 1; n >= 0; n--) {
      for (const b of [0, 1]) [parent[place(n, b)], bit[place(n, b)]] = [n, b];
      below[n] = [...new Set([0, 1].flatMap((b) => below[place(n, b)]))].sort((a, b) => a - b).slice(0, 3);
    }
    const node = (name) => w[`output.nodes.${name}`], M = node("nodes")?.shape[1]; // M: of nodes=morin_bengio
    const embedding = (n) => node("nodes").slice(n * M, n * M + M);
    const own = M && Array.from({ length: N }, (_, n) => linear(embedding(n), node("node_map.weight"))); // U N_n
    const listed = (at) => below[at].map(shown).join(", ") + (at < N ? " …" : "");
    function scores(h) { // s_n(h), [N]
      if (!own) return linear(h, node("vectors"), node("bias"));
      const x = linear(h, node("hidden.weight"), node("hidden.bias"));
      return vector(N, (n) => node("alpha")[n] + sumOf(x.map((v, i) => node("beta")[i] * Math.tanh(v + own[n][i]))));
    }
    return {
      logDist(h) {
        const s = scores(h), log = new Float64Array(N + L), dist = vector(leafWords[L - 1] + 1, () => -Infinity);
        for (let n = 0; n < N; n++) for (const b of [0, 1]) log[place(n, b)] = log[n] + logSigmoid(b ? s[n] : -s[n]);
        leafWords.forEach((word, leaf) => { dist[word] = logSumExp([dist[word], log[N + leaf]]); });
        return dist;
      },
      explain(h, word) { // a part for each code of the word
        const s = scores(h), parts = [];
        for (let leaf = leafWords.indexOf(word); leafWords[leaf] === word; leaf++) {
          const path = [];
          for (let at = N + leaf; parent[at] >= 0; at = parent[at]) path.unshift(at);
          const factors = path.map((at) => sigmoid(bit[at] ? s[parent[at]] : -s[parent[at]]));
          const code = path.map((at) => bit[at]).join(""), sides = (n) => [0, 1].map((b) => listed(place(n, b)));
          const rows = path.map((at, k) => [code.slice(0, k + 1), parent[at], factors[k], ...sides(parent[at])]);
          parts.push({ header: ["code", "node", "p", "below 0", "below 1"], rows, factors });
        }
        return parts;
      },
    };
  },
};

function network(w) {
  const { config, context_size: C } = about, output = OUTPUTS[about.output](w), E = config.embedding_dim;
  const embedding = (word) => Float64Array.from(w["encoder.embedding.weight"].subarray(word * E, word * E + E));
  const hidden = (context) => ENCODERS[about.encoder](context.map(embedding), w, config);
  return {
    context: (ids) => (C === null ? ids : [...new Array(C).fill(bos), ...ids].slice(-C)),
    logDist: (context) => output.logDist(hidden(context)),
    explain: (context, word) => ({ parts: output.explain(hidden(context), word) }),
  };
}

// Text: the words of a sentence by the rules of the run's data, as lmtool.data.text_form has them.
let words, ids, model, chosen = null; // words by id; ids of words; the token that is explained, null for the last word
function split(line) {
  const { spaces, form, lowercase, tags, chars } = about.rules, inForm = (text) => (form ? text.normalize(form) : text);
  let text = inForm(spaces ? Array.from(line, (c) => spaces[c] ?? c).join("") : line);
  if (lowercase === "tr") text = text.replaceAll("I\u0307", "i").replaceAll("\u0130", "i").replaceAll("I", "\u0131");
  if (lowercase) text = inForm(text.toLowerCase());
  if (tags) text = text.replace(/(?<=[^ \t-\r])\/[^\/ \t-\r]*(?![^ \t-\r])/g, "");
  return chars ? Array.from(text) : text.split(/[ \t-\r]+/).filter((word) => word);
}

const idOf = (word) => (word === "<s>" || word === "</s>" ? undefined : ids.get(word));
const found = {}; // log p and rank by context and word, as most words stay when the text changes
const ranked = (dist, id) => ({ logp: dist[id], rank: 1 + dist.slice(0, bos).filter((log) => log > dist[id]).length });

function score(line) { // the tokens of a sentence, with </s> if it is predicted
  const before = [bos], rows = [];
  function add(word, id, oov) {
    const context = model.context(before), key = `${context}:${id}`, isKnown = ![...context, id].includes(null);
    const { logp, rank } = isKnown ? (found[key] ??= ranked(model.logDist(context), id)) : {};
    rows.push({ word, id, oov, context, logp, rank, bits: -logp / Math.LN2 });
    before.push(id);
  }
  for (const word of split(line)) add(word, idOf(word) ?? unk, idOf(word) === undefined);
  if (eos !== null) add("</s>", eos, false);
  return rows;
}

function predict(line, top) { // the most likely next words, as [id, p]
  const context = model.context([bos, ...split(line).map((word) => idOf(word) ?? unk)]);
  if (context.includes(null)) return [];
  const dist = model.logDist(context).slice(0, bos);
  const order = Uint32Array.from(dist, (_, id) => id).sort((a, b) => dist[b] - dist[a] || a - b).slice(0, top);
  return Array.from(order, (id) => [id, Math.exp(dist[id])]).filter(([, p]) => p > 0);
}

// What is shown.
const [text, total, tokens, next, why, json] = document.querySelectorAll("#text, #total, #tokens, #next, #why, #json");
const visible = (word) => word.replace(/[ \t-\r]/g, (c) => (c === "\n" ? "⏎" : "␣"));
const shown = (id) => visible(words[id]);
const fixed = (v, digits) => (v === Infinity ? "infinite" : isNaN(v) ? "none" : v.toFixed(digits));
const number = (v) =>
  v === Infinity ? "infinite" : v % 1 === 0 ? `${v}` : Math.abs(v) < 0.001 ? v.toExponential(2) : v.toPrecision(4);

function element(tag, properties, ...children) { // strings become text nodes
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function show(focused, place) { // focused: the list whose button at this place keeps the focus
  const sentences = about.sentences ? text.value.split("\n") : [text.value];
  const lines = sentences.filter((line) => split(line).length).map(score), rows = lines.flat();
  const N = rows.length, bits = sumOf(rows.map((row) => row.bits)), mean = number(2 ** (bits / N));
  const count = (of) => rows.filter(of).length, none = count((row) => row.logp === undefined);
  const sum = none ? `${none} of them without a probability` : `${fixed(bits, 2)} bits, perplexity ${mean}`;
  total.textContent = N ? `${N} tokens, ${sum}, unknown words: ${count((row) => row.oov)}` : "No words yet.";
  const at = chosen ?? Math.max(0, N - (eos === null ? 1 : 2));
  const sentence = (line) => element("div", { dir: "auto", className: "sentence" }, ...line.map((row) => {
    const k = rows.indexOf(row), onclick = () => { chosen = k; show(tokens, k); }, style = `--heat: ${row.bits / 14}`;
    const word = element("span", { className: row.oov ? "oov" : "word" }, visible(row.word));
    const properties = { onclick, style, tabIndex: k === at ? 0 : -1, ariaPressed: k === at };
    return element("button", properties, word, element("small", {}, fixed(row.bits, 1)));
  }));
  tokens.replaceChildren(...lines.map(sentence));
  why.replaceChildren(...(N ? explanation(rows[at]) : []));
  const likely = predict(sentences.at(-1), 12), nothing = likely.length ? [] : ["No word has a probability here."];
  next.replaceChildren(...nothing, ...likely.map(([id, p], i) => {
    const properties = { style: `--p: ${p}`, onclick: () => { append(id); show(next, i); } };
    const button = element("button", properties, element("bdi", {}, shown(id)), element("span", {}, number(p)));
    return element("li", {}, button);
  }));
  focused?.querySelectorAll("button")[place]?.focus();
}

function append(id) {
  const space = about.rules.chars || /(^|[ \t-\r])$/.test(text.value) ? "" : " ";
  text.value += id === eos ? "\n" : space + words[id];
  chosen = null;
}

const explain = (row) => (row.logp === undefined ? { parts: [] } : model.explain(row.context, row.id));
function explanation(row) {
  const { order, parts } = explain(row), isNumber = (v) => typeof v === "number";
  const tables = parts.map(({ header, rows, factors }) => {
    const cells = (tag, values) => values.map((v, i) =>
      element(tag, isNumber(rows[0]?.[i]) ? { className: "number" } : { dir: "auto" }, isNumber(v) ? number(v) : v));
    const lines = rows.map((each, k) => element("tr", { style: `--p: ${factors?.[k] ?? 0}` }, ...cells("td", each)));
    return element("table", {}, element("tr", {}, ...cells("th", header)), ...lines);
  });
  const products = parts.map(({ factors = [] }) => factors.map(number).join(" × ")).join(" + ");
  const equation = [...new Set(["p", products || "p", number(Math.exp(row.logp))])].join(" = ");
  const known = `${equation}, ${fixed(row.bits, 2)} bits, rank ${row.rank} of ${bos}${order ? `, order ${order}` : ""}`;
  const none = "The model gives no probability to words outside its vocabulary, nor to words after them.";
  const unknown = row.oov ? ` is out of vocabulary and ${unk === null ? "has no probability" : "counts as <unk>"}` : "";
  const told = element("p", {}, row.logp === undefined ? none : known);
  return [element("h3", {}, element("bdi", {}, visible(row.word)), unknown), told, ...tables];
}

tokens.onkeydown = (event) => { // the arrows go from word to word
  const buttons = [...tokens.querySelectorAll("button")], isRight = event.key === "ArrowRight";
  const isForward = isRight === (getComputedStyle(event.target).direction === "ltr");
  if (isRight || event.key === "ArrowLeft") buttons[buttons.indexOf(event.target) + (isForward ? 1 : -1)]?.click();
};

readArrays().then((arrays) => {
  words = JSON.parse(new TextDecoder().decode(arrays.vocabulary));
  ids = new Map(words.map((word, id) => [word, id]));
  model = about.order ? ngramModel(arrays) : network(arrays);
  window.lm = { split, score, predict, model }; // to try in the browser's console
  for (let k = 0; k < 4 || (k < 40 && score(text.value).at(-1)?.bits === Infinity); k++) { // and until </s> may follow
    const likely = predict(text.value, bos).filter(([id]) => id !== unk && id !== eos);
    const word = likely.find(([id]) => !split(text.value).includes(words[id])) ?? likely[0];
    if (word) append(word[0]);
  }
  text.oninput = () => { chosen = null; show(); };
  show();
  const asked = JSON.parse(decodeURIComponent(location.hash.slice(1)) || "[]"); // sentences, of tests
  const scores = (row) => ({ ...row, logp: `${row.logp}`, ...explain(row) }); // may be -Infinity
  json.textContent = JSON.stringify(asked.map((line) => [score(line).map(scores), predict(line, 5)]));
});
