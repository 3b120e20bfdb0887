// The studio's page: one file, no framework. A view is a form and what comes of it; the inputs and the last result of each
// are kept in localStorage, the view itself in the address, so that a reload changes nothing.
"use strict";

const $ = (id) => document.getElementById(id);
const VIEWS = ["chain", "infill", "spelling", "schedule", "samplers"];
const MASK = "[MASK]", BLANK = "░", DOT = "·";
const MOST_STATES = 160; // of a chain that are kept

const EXAMPLES = {
  infill: "the history of the roman empire begins with the city of rome",
  spelling: "the goverment of the unitd states shares its power betwen the presidant and congress",
};

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// ---- what is kept ---------------------------------------------------------------------------------------------------

const kept = (() => {
  try { return JSON.parse(localStorage.getItem("unnoise-studio")) ?? {}; } catch { return {}; }
})();
kept.inputs ??= {};
kept.results ??= {};

function keep() {
  try { localStorage.setItem("unnoise-studio", JSON.stringify(kept)); } catch {
    try { localStorage.setItem("unnoise-studio", JSON.stringify({ ...kept, results: {} })); } catch { /* kept nowhere */ }
  }
}

// ---- talking to the studio ------------------------------------------------------------------------------------------

async function request(path, body, signal) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  };
  let answer;
  try { answer = await fetch(path, { ...options, signal }); } catch (error) {
    throw error.name === "AbortError" ? error : new Error("The studio does not answer; is it still running?");
  }
  if (answer.ok) return answer;
  const reply = await answer.json().catch(() => null);
  throw new Error(reply?.error?.message ?? `The studio answered with status ${answer.status}.`);
}

async function stream(path, body, signal, take) {
  const reader = (await request(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.map((text) => JSON.parse(text))) {
      if (line.error) throw new Error(line.error.message);
      take(line);
    }
  }
}

function showError(message) {
  $("error").textContent = message;
  $("error").hidden = !message;
}

// The button of a form starts its job, and stops it while it runs.
function onRun(view, job) {
  const form = $(`form-${view}`), button = form.querySelector(".run"), name = button.textContent;
  let running = null;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return running.abort();
    running = new AbortController();
    showError("");
    button.textContent = "Stop";
    button.classList.add("stop");
    form.setAttribute("aria-busy", "true");
    try { await job(inputs(view), running.signal); } catch (error) {
      if (error.name !== "AbortError") showError(error.message);
    } finally {
      running = null;
      button.textContent = name;
      button.classList.remove("stop");
      form.removeAttribute("aria-busy");
      keep();
    }
  });
}

// ---- inputs ---------------------------------------------------------------------------------------------------------

let model = null; // what the studio says about the chosen one

function inputs(view) {
  const form = $(`form-${view}`), values = {};
  for (const field of form.elements) {
    if (!field.name || field.type === "checkbox") continue;
    values[field.name] = field.type === "number" || field.type === "range" ? Number(field.value) : field.value;
  }
  const boxes = [...form.querySelectorAll("input[type=checkbox]")];
  if (boxes.length) values.samplers = boxes.filter((box) => box.checked).map((box) => box.value);
  return values;
}

function restoreInputs(view) {
  const form = $(`form-${view}`), values = kept.inputs[view] ?? {};
  for (const field of form.elements) {
    if (!field.name || field.type === "checkbox" || values[field.name] === undefined) continue;
    if (field.tagName === "SELECT" && ![...field.options].some((option) => option.value === values[field.name])) continue;
    field.value = values[field.name];
  }
  if (values.samplers) {
    for (const box of form.querySelectorAll("input[type=checkbox]")) box.checked = values.samplers.includes(box.value);
  }
}

// What a form says about how to write; a sampler's own fields go into its name, as in remasking:rate=0.05.
function sampling(form) {
  const { steps, temperature, top_p, seed } = form, options = { model: model.name, steps, temperature, top_p, seed };
  const chosen = model.samplers.find((one) => one.name === form.sampler);
  const set = (chosen?.fields ?? []).map(({ name, value }) => [name, form[`field.${name}`], value])
    .filter(([, typed, value]) => typed !== undefined && String(typed) !== String(value ?? ""));
  options.sampler = set.length ? `${chosen.name}:${set.map(([name, typed]) => `${name}=${typed}`).join(",")}` : form.sampler ?? "";
  if (model.labels.length) Object.assign(options, { label: form.label, guidance: form.guidance });
  return options;
}

// The fields of the chosen sampler, each as what it is: a number, a choice, or yes and no.
function showSamplerFields(view) {
  const form = $(`form-${view}`), place = form.querySelector(".sampler-fields");
  const chosen = model.samplers.find((one) => one.name === form.elements.sampler?.value);
  place?.replaceChildren(...(chosen?.fields ?? []).filter(({ kind }) => kind !== "sampler").map(({ name, kind, value, choices, optional, help }) => {
    const options = kind === "flag" ? ["false", "true"] : choices, id = `field.${name}`;
    const field = options.length ? make("select", { name: id }, ...options.map((text) => make("option", {}, text)))
      : make("input", { name: id, type: optional ? "text" : "number", step: kind === "whole" ? 1 : "any", required: !optional });
    field.value = value ?? "";
    if (optional) field.placeholder = "none";
    return make("label", { title: help }, `${name.replaceAll("_", " ")} `, field);
  }));
}

const percent = (p) => p >= 0.995 ? "100\u2009%" : p < 0.001 ? "<\u20090.1\u2009%" : `${(100 * p).toFixed(p < 0.1 ? 1 : 0)}\u2009%`;
const visible = (token) => token === " " ? "space" : token.replaceAll("\n", "↵").replaceAll("\t", "⇥");
const heat = (confidence) => 0.45 * (1 - confidence);

// ---- the chain ------------------------------------------------------------------------------------------------------

const chain = { frames: [], shown: {}, at: 0, timer: null, place: null, request: null };

function showFrame() {
  const frame = chain.frames[chain.at];
  if (!frame) return;
  const canvas = $("canvas"), fresh = new Set(frame.new), warm = $("heat").checked;
  while (canvas.children.length > frame.ids.length) canvas.lastChild.remove();
  while (canvas.children.length < frame.ids.length) canvas.append(make("span", { tabIndex: -1 }));
  frame.ids.forEach((id, i) => {
    const span = canvas.children[i], token = chain.shown[id] ?? DOT, mask = token === DOT, confidence = frame.confidence[i] / 100;
    if (span.textContent !== token) span.textContent = token;
    span.className = `${mask ? "mask" : ""}${fresh.has(i) ? " new" : ""}${i === chain.place ? " current" : ""}`;
    span.style.backgroundColor = warm && !mask && frame.confidence[i] ? `rgba(var(--warm), ${heat(confidence).toFixed(2)})` : "";
    span.tabIndex = i === (chain.place ?? 0) ? 0 : -1;
  });
  for (const id of ["player", "canvas", "legend"]) $(id).hidden = false;
  $("candidates").hidden = false;
  const scrubber = $("moment");
  scrubber.max = chain.frames.length - 1;
  scrubber.value = chain.at;
  $("when").textContent = `t = ${frame.t.toFixed(2)}, ${chain.at} of ${chain.frames.length - 1}`;
  scrubber.setAttribute("aria-valuetext", $("when").textContent);
}

function pause() {
  clearInterval(chain.timer);
  chain.timer = null;
  $("play").textContent = "Play";
}

function play() {
  if (chain.at >= chain.frames.length - 1) chain.at = 0;
  $("play").textContent = "Pause";
  chain.timer = setInterval(() => {
    if (chain.at >= chain.frames.length - 1) return pause();
    chain.at += 1;
    showFrame();
  }, Math.max(30, 6000 / chain.frames.length));
}

// What else could stand at a position; the last question is the one that counts.
function showCandidates(place) {
  const frame = chain.frames[chain.at];
  if (!frame || place < 0 || place >= frame.ids.length) return;
  chain.place = place;
  showFrame();
  clearTimeout(chain.request?.timer);
  chain.request?.control.abort();
  const control = new AbortController();
  chain.request = { control, timer: setTimeout(() => fetchCandidates(frame, place, control.signal), 120) };
}

async function fetchCandidates(frame, place, signal) {
  const panel = $("candidates");
  try {
    const body = { model: chain.query.model, ids: frame.ids, place, t: frame.t };
    const { candidates } = await (await request("api/candidates", body, signal)).json();
    panel.replaceChildren(make("h3", {}, `position ${place + 1}, t = ${frame.t.toFixed(2)}`), make("ol", {},
      ...candidates.map(([token, p]) => {
        const bar = make("i");
        bar.style.width = `${100 * p}%`;
        return make("li", { className: "odds" }, make("b", {}, visible(token)), bar, make("small", {}, percent(p)));
      })));
  } catch (error) {
    if (error.name !== "AbortError") panel.replaceChildren(make("p", { className: "soft" }, error.message));
  }
}

function keepChain(query) {
  const { frames } = chain, last = frames.length - 1;
  const some = last < MOST_STATES ? frames : Array.from({ length: MOST_STATES }, (_, i) => frames[Math.round(i * last / (MOST_STATES - 1))]);
  kept.results.chain = { frames: some, shown: chain.shown, query };
}

onRun("chain", async (form, signal) => {
  pause();
  Object.assign(chain, { frames: [], shown: {}, at: 0, place: null });
  $("candidates").replaceChildren();
  const query = { ...sampling(form), template: form.template, length: form.length };
  chain.query = query;
  let drawn = 0;
  try {
    await stream("api/chain", query, signal, (line) => {
      if (!line.ids) return;
      Object.assign(chain.shown, line.shown);
      delete line.shown;
      const live = chain.at >= chain.frames.length - 1;
      chain.frames.push(line);
      if (live) chain.at = chain.frames.length - 1;
      if (performance.now() - drawn > 30) { drawn = performance.now(); showFrame(); }
    });
  } finally {
    showFrame();
    if (chain.frames.length) keepChain(query);
  }
});

function startChain() {
  $("play").onclick = () => chain.timer ? pause() : play();
  $("moment").oninput = () => { pause(); chain.at = Number($("moment").value); showFrame(); };
  $("heat").onchange = showFrame;
  const canvas = $("canvas"), index = (target) => [...canvas.children].indexOf(target);
  canvas.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse") showCandidates(index(event.target)); });
  canvas.addEventListener("focusin", (event) => showCandidates(index(event.target)));
  canvas.addEventListener("click", (event) => event.target.focus());
  canvas.addEventListener("keydown", (event) => {
    const at = index(event.target), last = canvas.children.length - 1;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last }[event.key];
    if (to === undefined || to < 0 || to > last) return;
    event.preventDefault();
    canvas.children[to].focus();
  });
  $("save").onclick = async () => {
    const button = $("save");
    button.disabled = true;
    try {
      const { page } = await (await request("api/replay", chain.query)).json();
      const url = URL.createObjectURL(new Blob([page], { type: "text/html" }));
      make("a", { href: url, download: `${chain.query.model}-${chain.query.seed}.html` }).click();
      URL.revokeObjectURL(url);
    } catch (error) { showError(error.message); } finally { button.disabled = false; }
  };
  const result = kept.results.chain;
  if (result) {
    Object.assign(chain, { frames: result.frames, shown: result.shown, query: result.query, at: result.frames.length - 1 });
    showFrame();
  }
}

// ---- filling in -----------------------------------------------------------------------------------------------------

const past = []; // texts before the last changes

function change(text) {
  const editor = $("editor");
  past.push(editor.value);
  $("back").disabled = false;
  editor.value = text;
  remember("infill");
}

async function blankSelection() {
  const editor = $("editor"), { selectionStart: start, selectionEnd: stop, value } = editor;
  if (start === stop) return showError("Select the part of the text that is to be blanked.");
  showError("");
  const chosen = value.slice(start, stop), already = chosen.split(BLANK).length - 1;
  try {
    const text = chosen.replaceAll(BLANK, "");
    const { blank } = text ? await (await request("api/blank", { model: model.name, text })).json() : { blank: "" };
    const marks = blank.replaceAll(MASK, BLANK) + BLANK.repeat(already);
    change(value.slice(0, start) + marks + value.slice(stop));
    editor.focus();
    editor.setSelectionRange(start, start + marks.length);
  } catch (error) { showError(error.message); }
}

function showVariants(lines) {
  $("variants").replaceChildren(...lines.map((line) => {
    if (!line.pieces) return make("li", {}, make("p", { className: "draft" }, line.draft));
    const parts = line.pieces.map(({ text, new: fresh, confidence }) => {
      if (!fresh) return text;
      const part = make("ins", { title: `mean probability ${percent(confidence)}` }, text);
      part.style.setProperty("--heat", heat(confidence).toFixed(2));
      return part;
    });
    const filled = line.pieces.filter((piece) => piece.new);
    const confidence = filled.reduce((sum, piece) => sum + piece.confidence, 0) / Math.max(1, filled.length);
    const accept = make("button", { type: "button", onclick: () => { change(line.text); $("editor").focus(); } }, "Accept");
    return make("li", {}, make("p", {}, ...parts), make("small", { className: "soft", title: "mean probability of what was filled in" }, `${percent(confidence)} sure`),
      accept);
  }));
}

onRun("infill", async (form, signal) => {
  const template = form.text.replaceAll(BLANK, MASK);
  if (!/\[(MASK|GAP)\]/.test(template)) throw new Error("Nothing is blank yet: select a part of the text and blank it.");
  const lines = [];
  kept.results.infill = lines;
  try {
    await stream("api/infill", { ...sampling(form), template, variants: form.variants }, signal, (line) => {
      lines[line.variant] = line;
      showVariants(lines);
    });
  } finally {
    kept.results.infill = lines.filter((line) => line.pieces);
    showVariants(kept.results.infill);
  }
});

function startInfill() {
  $("blank").onclick = blankSelection;
  $("editor").addEventListener("keydown", (event) => {
    if (event.altKey && event.code === "KeyB") { event.preventDefault(); blankSelection(); }
  });
  $("back").onclick = () => {
    $("editor").value = past.pop();
    $("back").disabled = !past.length;
    remember("infill");
  };
  if (kept.inputs.infill?.text === undefined) $("editor").value = EXAMPLES.infill;
  showVariants(kept.results.infill ?? []);
}

// ---- spelling -------------------------------------------------------------------------------------------------------

// An edit's `choice` is what stands there in the end: its word, an alternative, or what stood there before.
const spelling = { text: "", edits: [] };

function corrected() {
  let at = 0, text = "";
  for (const edit of spelling.edits) {
    text += spelling.text.slice(at, edit.start) + edit.choice;
    at = edit.start + edit.before.length;
  }
  return text + spelling.text.slice(at);
}

function choose(edit, choice) {
  edit.choice = choice;
  showSpelling();
  keep();
}

function showSpelling() {
  const { text, edits } = spelling, parts = [];
  let at = 0;
  edits.forEach((edit, i) => {
    const taken = edit.choice !== edit.before;
    const inserted = make("ins", {}, edit.choice);
    inserted.style.setProperty("--heat", heat(probability(edit)).toFixed(2));
    parts.push(text.slice(at, edit.start), make("a", { className: taken ? "taken" : "rejected", href: `#edit-${i}`,
      onclick: (event) => { event.preventDefault(); $(`edit-${i}`).querySelector("button").focus(); } },
    make("del", {}, edit.before), inserted));
    at = edit.start + edit.before.length;
  });
  $("diff").replaceChildren(...parts, text.slice(at));
  const focused = document.activeElement?.dataset?.key;
  $("edits").replaceChildren(...edits.map((edit, i) => {
    const options = [[edit.after, edit.confidence], ...edit.alternatives.filter(([word]) => word !== edit.before)];
    const button = (label, word, verb) => {
      const made = make("button", { type: "button", onclick: () => choose(edit, word) }, label);
      made.setAttribute("aria-pressed", edit.choice === word);
      made.setAttribute("aria-label", `${verb} ${word}`);
      made.dataset.key = `${i} ${word}`;
      return made;
    };
    return make("li", { id: `edit-${i}` },
      make("span", { className: "change" }, make("del", {}, edit.before), " → ", edit.after),
      make("span", { className: "sure" }, percent(edit.confidence)),
      make("span", { className: "others" },
        ...options.map(([word, p]) => button(`${word} ${percent(p)}`, word, "write")),
        button("as it was", edit.before, "keep"),
        make("button", { type: "button", onclick: () => never(edit) }, `always keep “${edit.before}”`)));
  }));
  if (focused) [...$("edits").querySelectorAll("button")].find((one) => one.dataset.key === focused)?.focus();
  const taken = edits.filter((edit) => edit.choice !== edit.before).length;
  $("tally").textContent = edits.length ? `${taken} of ${edits.length} edits accepted` : "Nothing to correct.";
  $("corrected").hidden = !text;
  $("take").disabled = !taken;
}

function probability(edit) {
  const found = [[edit.after, edit.confidence], ...edit.alternatives].find(([word]) => word === edit.choice);
  return found ? found[1] : 1;
}

function never(edit) {
  const field = $("form-spelling").elements.keep;
  field.value = `${field.value} ${edit.before}`.trim();
  remember("spelling");
  choose(edit, edit.before);
}

function chooseAll(accept) {
  for (const edit of spelling.edits) edit.choice = accept ? edit.after : edit.before;
  showSpelling();
  keep();
}

onRun("spelling", async (form, signal) => {
  Object.assign(spelling, { text: form.text, edits: [] });
  kept.results.spelling = spelling;
  const body = { model: model.name, text: form.text, strength: form.strength, keep: form.keep.split(/[\s,]+/).filter(Boolean) };
  await stream("api/correct", body, signal, (line) => {
    spelling.edits.push(...line.edits.map((edit) => ({ ...edit, choice: edit.after })));
    showSpelling();
  });
});

function startSpelling() {
  const slider = $("form-spelling").elements.strength;
  const show = () => { $("strength-shown").textContent = Number(slider.value).toFixed(2); };
  slider.addEventListener("input", show);
  if (kept.inputs.spelling?.text === undefined) $("misspelled").value = EXAMPLES.spelling;
  $("accept-all").onclick = () => chooseAll(true);
  $("reject-all").onclick = () => chooseAll(false);
  $("take").onclick = () => {
    $("misspelled").value = corrected();
    Object.assign(spelling, { text: "", edits: [] });
    showSpelling();
    remember("spelling");
    $("misspelled").focus();
  };
  show();
  if (kept.results.spelling) { Object.assign(spelling, kept.results.spelling); kept.results.spelling = spelling; showSpelling(); }
}

// ---- the schedule ---------------------------------------------------------------------------------------------------

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A frame with axes; `plot` gets functions from values to coordinates.
function chart(title, { xs, ys, x, y, height = 230, ticks = true }, plot) {
  const width = Math.max(280, Math.min($("charts").clientWidth, 900)), left = 44, bottom = height - 34;
  const at = (v) => left + (v - xs[0]) / (xs[1] - xs[0]) * (width - left - 8);
  const up = (v) => bottom - (v - ys[0]) / (ys[1] - ys[0]) * (bottom - 12);
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    const v = ys[0] + share * (ys[1] - ys[0]), h = xs[0] + share * (xs[1] - xs[0]);
    parts.push(svg("line", { class: share ? "grid" : "axis", x1: left, x2: width - 8, y1: up(v), y2: up(v) }),
      svg("text", { x: left - 7, y: up(v) + 4, "text-anchor": "end" }, tidy(v)));
    if (ticks) parts.push(svg("text", { x: at(h), y: bottom + 16, "text-anchor": share === 1 ? "end" : "middle" }, tidy(h)));
  }
  parts.push(svg("text", { x: left, y: 4 }, y), svg("text", { x: width - 8, y: bottom + 32, "text-anchor": "end" }, x));
  const picture = svg("svg", { viewBox: `0 -8 ${width} ${height + 10}`, role: "img", "aria-label": title }, ...parts, ...plot(at, up));
  return make("figure", {}, make("figcaption", {}, title), picture);
}

// The next number with one digit that reads well.
function rounded(v) {
  const unit = 10 ** Math.floor(Math.log10(v));
  return unit * [1, 2, 4, 5, 10].find((digit) => digit * unit >= v);
}

const tidy = (v) => Number(v.toFixed(Math.abs(v) < 10 ? 2 : 0)).toString();

function drawSchedule(result) {
  const figures = [], names = Object.keys(result.curves);
  if (!names.length) {
    return $("charts").replaceChildren(make("p", {}, `${model.method} has no noise schedule: there is no α(t) to draw.`));
  }
  const learned = result.exponents.length ? " (the mean over tokens)" : "";
  figures.push(chart(`How much of a text is left at time t${learned}${names.length > 1 ? `: ${names.join("; ")}` : ""}`,
    { xs: [0, 1], ys: [0, 1], x: "t (0 is text, 1 is noise)", y: "α(t)" }, (at, up) => names.map((name, i) => svg("path", {
      class: i ? "curve second" : "curve",
      d: result.curves[name].map((v, k) => `${k ? "L" : "M"}${at(result.t[k]).toFixed(1)} ${up(v).toFixed(1)}`).join(""),
    }))));
  const { counts } = result, most = rounded(Math.max(...counts));
  const what = model.variable_length ? "inserted" : "written";
  figures.push(chart(`Tokens ${what} at each of ${counts.length} steps, on average, in a text of ${result.length}`,
    { xs: [0.5, counts.length + 0.5], ys: [0, most], x: `step, 1 to ${counts.length}`, y: "tokens", ticks: false }, (at, up) =>
      counts.map((v, i) => svg("rect", { class: "bars", x: at(i + 0.6), width: Math.max(0.5, at(i + 1.4) - at(i + 0.6)), y: up(v),
        height: Math.max(0, up(0) - up(v)) }, svg("title", {}, `step ${i + 1}: ${tidy(v)} tokens`)))));
  if (result.exponents.length) {
    const some = result.exponents, values = some.map((pair) => pair[1]), part = some.length < result.tokens;
    const low = Math.min(...values), high = Math.max(...values);
    figures.push(chart(
      `Learned exponents w of α(t) = 1 − t^w, from the tokens revealed first to the last${part ? " (both ends)" : ""}`,
      { xs: [-0.5, some.length - 0.5], ys: [low - 0.05, high + 0.05], x: "token", y: "w", ticks: false }, (at, up) =>
        some.map(([token, w], i) => svg("text", { class: "token", x: at(i), y: up(w) + 4 }, token, svg("title", {}, `${token}: ${w.toFixed(3)}`)))));
  }
  $("charts").replaceChildren(...figures);
}

let drawn = null;
onRun("schedule", async (form, signal) => {
  drawn = await (await request("api/schedule", { model: model.name, steps: form.steps }, signal)).json();
  drawSchedule(drawn);
});

function startSchedule() {
  new ResizeObserver(() => { if (drawn && $("charts").clientWidth) drawSchedule(drawn); }).observe($("view-schedule"));
}

// ---- samplers side by side ------------------------------------------------------------------------------------------

function showResults(results) {
  $("results").replaceChildren(...Object.entries(results).map(([name, line]) => {
    const done = line.text !== undefined;
    const cost = done ? `${line.calls} network calls, ${line.seconds.toFixed(2)} s` : "writing…";
    return make("article", { className: "result" }, make("h3", {}, name),
      make("div", { className: "cost" }, cost), make("div", { className: "soft" }, `It ${distributionOf(name)}.`),
      make("p", { className: done ? "text" : "text draft" }, done ? line.text : line.draft));
  }));
}

const distributionOf = (name) => model.samplers.find((sampler) => sampler.name === name)?.distribution ?? "is not for this model";

onRun("samplers", async (form, signal) => {
  if (!form.samplers.length) throw new Error("Choose at least one sampler.");
  const results = {};
  kept.results.samplers = results;
  const { sampler, ...options } = sampling(form);
  try {
    await stream("api/compare", { ...options, template: form.template, length: form.length, samplers: form.samplers }, signal, (line) => {
      results[line.sampler] = line;
      showResults(results);
    });
  } finally {
    for (const name of Object.keys(results)) if (results[name].text === undefined) delete results[name];
    showResults(results);
  }
});

// ---- the page -------------------------------------------------------------------------------------------------------

function remember(view) {
  kept.inputs[view] = inputs(view);
  keep();
}

function showView() {
  const wanted = location.hash.slice(1), view = VIEWS.includes(wanted) ? wanted : kept.view ?? "chain";
  kept.view = view;
  keep();
  showError("");
  for (const name of VIEWS) $(`view-${name}`).hidden = name !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  document.title = `${$(`head-${view}`).textContent} · unnoise studio`;
  if (view === "schedule" && model && !drawn) $("form-schedule").requestSubmit();
}

async function openModel(name) {
  $("about").textContent = `Opening ${name}…`;
  try { model = await (await request(`api/models/${encodeURIComponent(name)}`)).json(); } catch (error) {
    $("about").textContent = "";
    return showError(error.message);
  }
  kept.model = name;
  keep();
  const size = model.parameters >= 1e6 ? `${(model.parameters / 1e6).toFixed(1)} million` : model.parameters.toLocaleString("en");
  $("about").textContent = `${model.title}. ${model.variable_length ? "At most" : "Texts of"} ${model.length} tokens `
    + `(${model.codec}), ${size} parameters.`;
  for (const select of document.querySelectorAll("select[name=sampler]")) {
    const before = select.value;
    select.replaceChildren(make("option", { value: "" }, `own (${model.own_sampler})`),
      ...model.samplers.map((sampler) => make("option", { value: sampler.name, title: sampler.distribution }, sampler.name)));
    if (model.samplers.some((sampler) => sampler.name === before)) select.value = before;
  }
  for (const select of document.querySelectorAll("select[name=label]")) {
    select.replaceChildren(make("option", { value: "" }, "any"), ...model.labels.map((name) => make("option", {}, name)));
  }
  for (const label of document.querySelectorAll(".label")) {
    label.hidden = !model.labels.length || (label.classList.contains("guidance") && !model.guidance);
  }
  const chosen = new Set(["ancestral", "confidence", "entropy-bounded", model.own_sampler]);
  $("choose").replaceChildren($("choose").querySelector("legend"), ...model.samplers.map(({ name, distribution }) =>
    make("label", { className: "check", title: distribution }, make("input", { type: "checkbox", value: name, checked: chosen.has(name) }), name)));
  const check = $("form-spelling").querySelector(".run");
  check.disabled = !model.corrects;
  check.title = model.corrects ? "" : "This model has no list of words, or not the kind of noise that spell checking needs.";
  drawn = null;
  for (const view of VIEWS) {
    restoreInputs(view);
    if (view !== "samplers") showSamplerFields(view);
    restoreInputs(view);
  }
  for (const field of document.querySelectorAll("input[name=length]")) {
    field.max = model.length;
    if (!field.value || Number(field.value) > model.length) field.value = model.length;
  }
}

async function start() {
  for (const place of document.querySelectorAll(".sampling")) place.append($("sampling").content.cloneNode(true));
  $("form-samplers").querySelector(".pick").remove();
  for (const view of VIEWS) {
    restoreInputs(view);
    const form = $(`form-${view}`);
    form.elements.sampler?.addEventListener("change", () => showSamplerFields(view));
    form.addEventListener("input", () => remember(view));
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
  }
  addEventListener("hashchange", showView);
  showView();
  let list;
  try { list = await (await request("api/models")).json(); } catch (error) { return showError(error.message); }
  const names = list.models.map((one) => one.name), select = $("model");
  select.replaceChildren(...list.models.map(({ name, method }) => make("option", { value: name }, name === method ? name : `${name} (${method})`)));
  select.value = names.includes(kept.model) ? kept.model : list.default;
  select.onchange = async () => { await openModel(select.value); showView(); };
  await openModel(select.value);
  if (!model) return;
  startChain();
  startInfill();
  startSpelling();
  startSchedule();
  showResults(kept.results.samplers ?? {});
  showView();
  document.body.dataset.ready = "true";
}

start();
