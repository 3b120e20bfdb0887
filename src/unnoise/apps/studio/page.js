// The studio's page: one file, no framework. A view is a form and its result. To survive a reload, inputs and last results are in
// localStorage, the current view is in the address, and running jobs are in sessionStorage.
"use strict";

const $ = (id) => document.getElementById(id);
const VIEWS = ["chain", "infill", "spelling", "noise", "schedule", "samplers", "models"];
const MASK = "[MASK]", WORD = "[WORD]", BLANK = "░", DOT = "·";
const MOST_STEPS = 1024; // of a request
const MOST_STATES = 160, MOST_NUMBERS = 200_000; // of a stored chain

const EXAMPLES = {
  infill: "the history of the roman empire begins with the city of rome",
  noise: "the history of the roman empire begins with the city of rome",
  spelling: "the goverment of the unitd states shares its power betwen the presidant and congress",
};

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// ---- stored state --------------------------------------------------------------------------------------------------

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

// A result is shown only with the model that made it.
const resultOf = (view) => model && kept.results[view]?.model === model.name ? kept.results[view] : null;

// Running jobs of this tab, by view. They start again after a reload: the same seed gives the same result.
const underWay = (() => {
  try { return JSON.parse(sessionStorage.getItem("unnoise-studio")) ?? {}; } catch { return {}; }
})();

function keepUnderWay(view, task) {
  if (task) underWay[view] = task; else delete underWay[view];
  try { sessionStorage.setItem("unnoise-studio", JSON.stringify(underWay)); } catch { /* kept nowhere */ }
}

let leaving = false; // a request that ends with the page counts as running
addEventListener("beforeunload", () => { leaving = true; setTimeout(() => { leaving = false; }, 3000); });
addEventListener("pagehide", () => { leaving = true; });
addEventListener("pageshow", () => { leaving = false; });

// ---- requests -------------------------------------------------------------------------------------------------------

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
    const { value, done } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new Error("The connection to the studio was lost; start again.");
    });
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

// Connect the button of a form: it starts a job, or stops the running one. `ask` turns the inputs into a task (a path and a body)
// and `work` runs it.
const jobs = {};

function onRun(view, ask, work) {
  const form = $(`form-${view}`), button = form.querySelector(".run"), name = button.textContent;
  let control = null, ended = null;
  const run = async (task) => {
    const mine = control = new AbortController();
    showError("");
    showStatus(view, "");
    keepUnderWay(view, task);
    button.textContent = "Stop";
    button.classList.add("stop");
    form.setAttribute("aria-busy", "true");
    try { await work(task, mine.signal); } catch (error) {
      if (error.name !== "AbortError") showError(error.message);
      else {
        if (kept.results[view]?.model === task.body.model) kept.results[view].stopped = true;
        showStatus(view, "Stopped.");
      }
    } finally {
      control = null;
      button.textContent = name;
      button.classList.remove("stop");
      form.removeAttribute("aria-busy");
      if (!leaving) keepUnderWay(view, null);
      keep();
    }
  };
  const start = (task) => { ended = run(task); };
  jobs[view] = { start, stop: () => { control?.abort(); return ended; }, isRunning: () => control !== null };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (control) return control.abort();
    if (!model) return;
    try { start(ask(inputs(view))); } catch (error) { showError(error.message); }
  });
}

function showStatus(view, text) {
  $(`form-${view}`).querySelector(".status").textContent = text;
}

// ---- inputs ---------------------------------------------------------------------------------------------------------

let model = null; // description of the selected model

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

// The sampling options of a form; the fields of a sampler are part of its name, as in remasking:rate=0.05.
function sampling(form) {
  const { steps, temperature, top_p, seed } = form, options = { model: model.name, steps, temperature, top_p, seed };
  const chosen = model.samplers.find((one) => one.name === form.sampler);
  const set = (chosen?.fields ?? []).map(({ name, value }) => [name, form[`field.${name}`], value])
    .filter(([, typed, value]) => typed !== undefined && String(typed) !== String(value ?? ""));
  options.sampler = set.length ? `${chosen.name}:${set.map(([name, typed]) => `${name}=${typed}`).join(",")}` : form.sampler ?? "";
  if (model.labels.length) Object.assign(options, { label: form.label, guidance_scale: form.guidance_scale });
  return options;
}

// Inputs for the fields of the selected sampler: numbers, choices and flags.
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
  for (const id of ["player", "legend"]) $(id).hidden = !frame;
  for (const id of ["canvas", "candidates"]) $(id).hidden = !frame?.ids;
  $("pictures").hidden = !frame?.rows;
  if (!frame) return;
  if (frame.rows) showPictures($("pictures"), frame.rows); else showTokens(frame);
  const scrubber = $("moment");
  scrubber.max = chain.frames.length - 1;
  scrubber.value = chain.at;
  $("when").textContent = `t = ${frame.t.toFixed(2)}, ${chain.at} of ${chain.frames.length - 1}`;
  scrubber.setAttribute("aria-valuetext", $("when").textContent);
}

function showTokens(frame) {
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

// Show the alternatives at a position; only the latest request counts.
function showCandidates(place) {
  const frame = chain.frames[chain.at];
  if (!frame?.ids || place < 0 || place >= frame.ids.length) return;
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

function keepChain() {
  const { frames, shown, query } = chain, last = frames.length - 1;
  const numbers = frames[0].ids?.length ?? frames[0].rows.flat().length;
  const most = Math.max(2, Math.min(MOST_STATES, Math.floor(MOST_NUMBERS / numbers)));
  const some = last < most ? frames : Array.from({ length: most }, (_, i) => frames[Math.round(i * last / (most - 1))]);
  kept.results.chain = { model: query.model, frames: some, shown, query };
}

onRun("chain", (form) => model.image ? { path: "api/images", body: { ...sampling(form), images: form.images } }
  : { path: "api/chain", body: { ...sampling(form), template: form.template, length: form.length } },
async ({ path, body }, signal) => {
  pause();
  Object.assign(chain, { frames: [], shown: {}, at: 0, place: null, query: body });
  delete kept.results.chain;
  $("candidates").replaceChildren();
  let drawn = 0;
  try {
    await stream(path, body, signal, (line) => {
      if (line.t === undefined) return;
      Object.assign(chain.shown, line.shown);
      delete line.shown;
      const live = chain.at >= chain.frames.length - 1;
      chain.frames.push(line);
      if (live) chain.at = chain.frames.length - 1;
      if (performance.now() - drawn > 30) { drawn = performance.now(); showFrame(); }
    });
  } finally {
    if (model?.name === body.model) showFrame();
    if (chain.frames.length) keepChain();
  }
});

function restoreChain() {
  pause();
  const { frames = [], shown = {}, query = null } = resultOf("chain") ?? {};
  Object.assign(chain, { frames, shown, query, at: Math.max(0, frames.length - 1), place: null });
  $("candidates").replaceChildren();
  showFrame();
}

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
}

// ---- images ---------------------------------------------------------------------------------------------------------

// Draw an image; masked pixels are transparent.
function paint(canvas, ids) {
  const { height, width, channels, levels } = model.image, image = new ImageData(width, height);
  for (let i = 0; i < height * width; i += 1) {
    const pixel = ids.slice(i * channels, (i + 1) * channels), there = pixel.some((level) => level < levels);
    for (let c = 0; c < 3; c += 1) {
      const level = pixel[channels === 1 ? 0 : c];
      image.data[4 * i + c] = level < levels ? Math.round(255 * level / (levels - 1)) : 128;
    }
    image.data[4 * i + 3] = there ? 255 : 0;
  }
  Object.assign(canvas, { width, height, ids });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function showPictures(place, rows) {
  while (place.children.length > rows.length) place.lastChild.remove();
  while (place.children.length < rows.length) {
    const canvas = make("canvas"), button = make("button", { type: "button", className: "picture" }, canvas);
    button.onclick = () => choosePicture(canvas.ids);
    button.setAttribute("aria-label", `image ${place.children.length + 1}: keep half of it`);
    place.append(button);
  }
  rows.forEach((ids, i) => paint(place.children[i].firstChild, ids));
  place.classList.toggle("one", rows.length === 1);
}

// The chosen image in the view Fill in.
function choosePicture(ids) {
  const isWhole = ids.every((level) => level < model.image.levels);
  if (!isWhole) return showError("This image is not complete: go to the end of its chain.");
  kept.source = { model: model.name, ids };
  keep();
  showSource();
  location.hash = "infill";
}

const source = () => model?.image && kept.source?.model === model.name ? kept.source.ids : null;

function showSource() {
  const ids = source();
  $("no-source").hidden = Boolean(ids);
  $("source").hidden = !ids;
  if (!ids) return;
  const { height, width, channels, levels } = model.image, given = $("form-infill").elements.given.value;
  const isKept = (i) => {
    const row = Math.floor(i / (width * channels)), column = Math.floor(i / channels) % width;
    return { upper: row < Math.floor(height / 2), lower: row >= Math.floor(height / 2),
      left: column < Math.floor(width / 2), right: column >= Math.floor(width / 2) }[given];
  };
  const canvas = $("source").firstChild ?? $("source").appendChild(make("canvas", { role: "img" }));
  canvas.setAttribute("aria-label", `${given} half of the chosen image`);
  paint(canvas, ids.map((level, i) => isKept(i) ? level : levels));
}

// ---- filling in -----------------------------------------------------------------------------------------------------

const past = []; // earlier texts, for undo

function change(text) {
  const editor = $("editor");
  past.push(editor.value);
  $("back").disabled = false;
  editor.value = text;
  remember("infill");
}

async function blankSelection() {
  const editor = $("editor"), { selectionStart: start, selectionEnd: stop, value } = editor;
  if (start === stop) return showError("Select the text to blank.");
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

// Replace each selected word by a mark, or insert one at the caret; the model chooses its length.
function blankWords() {
  const editor = $("editor"), { selectionStart: start, selectionEnd: stop, value } = editor;
  showError("");
  const marks = value.slice(start, stop).replaceAll(/[\p{L}\p{N}'’-]+/gu, WORD) || WORD;
  change(value.slice(0, start) + marks + value.slice(stop));
  editor.focus();
  editor.setSelectionRange(start + marks.length, start + marks.length);
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
    return make("li", {}, make("p", {}, ...parts), make("small", { className: "soft", title: "mean probability of the new text" }, `${percent(confidence)} confidence`),
      accept);
  }));
}

function askInfill(form) {
  if (model.image) {
    if (!source()) throw new Error("There is no image yet: sample some in Chain and choose one.");
    return { path: "api/images", body: { ...sampling(form), images: form.variants, given: form.given, ids: source() } };
  }
  const template = form.text.replaceAll(BLANK, MASK);
  if (!/\[(MASK|GAP|WORD)\]/.test(template)) throw new Error("Nothing is blank yet: select some text and blank it.");
  return { path: "api/infill", body: { ...sampling(form), template, variants: form.variants } };
}

onRun("infill", askInfill, async ({ path, body }, signal) => {
  const result = kept.results.infill = { model: body.model, lines: [], rows: [] };
  try {
    await stream(path, body, signal, (line) => {
      if (line.rows) result.rows = line.rows;
      else if (line.variant !== undefined) result.lines[line.variant] = line;
      showInfill();
    });
  } finally {
    result.lines = result.lines.filter((line) => line.pieces);
    showInfill();
  }
});

function showInfill() {
  const { lines = [], rows = [] } = resultOf("infill") ?? {};
  showVariants(lines);
  if (model?.image) showPictures($("painted"), rows); else $("painted").replaceChildren();
}

function startInfill() {
  $("blank").onclick = blankSelection;
  $("blank-words").onclick = blankWords;
  $("editor").addEventListener("keydown", (event) => {
    if (event.altKey && event.code === "KeyB") { event.preventDefault(); blankSelection(); }
  });
  $("back").onclick = () => {
    $("editor").value = past.pop();
    $("back").disabled = !past.length;
    remember("infill");
  };
  $("form-infill").elements.given.addEventListener("change", showSource);
  if (kept.inputs.infill?.text === undefined) $("editor").value = EXAMPLES.infill;
}

// ---- spelling -------------------------------------------------------------------------------------------------------

// `choice` of an edit is the final text: the correction, an alternative, or the original.
let spelling = { text: "", edits: [] };

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
        button("keep original", edit.before, "keep"),
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

onRun("spelling", (form) => ({ path: "api/correct", body: { model: model.name, text: form.text, strength: form.strength,
  keep: form.keep.split(/[\s,]+/).filter(Boolean) } }), async ({ path, body }, signal) => {
  const result = spelling = kept.results.spelling = { model: body.model, text: body.text, edits: [] };
  await stream(path, body, signal, (line) => {
    result.edits.push(...line.edits.map((edit) => ({ ...edit, choice: edit.after })));
    showSpelling();
  });
});

function restoreSpelling() {
  spelling = resultOf("spelling") ?? { text: "", edits: [] };
  showSpelling();
}

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
}

// ---- noising and denoising --------------------------------------------------------------------------------------------

// A text along a path of noise, and the result of denoising from one of its times.
const path = () => resultOf("noise");
const changedTokens = (ids) => ids.filter((id, i) => id !== path().states[0].ids[i]).length;
const share = (ids) => `${Math.round(100 * changedTokens(ids) / ids.length)}\u2009%`;

function showNoised(place, ids, shown) {
  const before = path().states[0].ids;
  while (place.children.length > ids.length) place.lastChild.remove();
  while (place.children.length < ids.length) place.append(make("span"));
  ids.forEach((id, i) => {
    const span = place.children[i], other = id !== before[i], token = shown[id] ?? DOT;
    if (span.textContent !== token) span.textContent = token;
    span.className = id >= model.vocab ? "mask" : other ? "other" : "";
  });
}

function showNoise() {
  const found = path(), form = $("form-back");
  form.hidden = !found;
  if (!found) return;
  const moment = form.elements.moment, { t, ids } = found.states[Number(moment.value)];
  showNoised($("noised"), ids, found.shown);
  $("how-noisy").textContent = `t = ${t.toFixed(2)}, ${share(ids)} noised`;
  moment.setAttribute("aria-valuetext", $("how-noisy").textContent);
  const own = found.query.noise === "" && model.can_denoise_from;
  const why = own ? "" : model.can_denoise_from ? `${model.name} can denoise only its own noise: choose “own”.`
    : `${model.method} has no noise of this kind and cannot denoise.`;
  $("no-way-back").textContent = why;
  $("no-way-back").hidden = !why;
  form.querySelector(".run").disabled = !own || (moment.value === "0" && !jobs.back.isRunning());
  const back = resultOf("back"), fits = own && back && back.text === found.query.text && back.seed === found.query.seed;
  $("returned").hidden = !fits;
  if (!fits) return showStatus("back", "");
  showNoised($("returned"), back.ids, back.shown);
  showStatus("back", `From t = ${back.from.toFixed(2)} to t = ${back.t.toFixed(2)}: ${share(back.ids)} of the tokens differ from the text.`);
}

onRun("noise", (form) => ({ path: "api/noise", body: { model: model.name, text: form.text, noise: form.noise, seed: form.seed } }),
  async ({ path, body }, signal) => {
    await jobs.back.stop();
    const found = await (await request(path, body, signal)).json();
    kept.results.noise = { model: body.model, ...found, query: body };
    delete kept.results.back;
    showNoise();
  });

onRun("back", (form) => {
  const { text, seed } = path().query;
  return { path: "api/back", body: { model: model.name, text, seed, moment: form.moment, steps: form.steps } };
}, async ({ path: address, body }, signal) => {
  if (!path()) return;
  const start = path().states[body.moment], { model: name, text, seed } = body;
  const result = kept.results.back = { model: name, text, seed, from: start.t, t: start.t, ids: start.ids, shown: { ...path().shown } };
  await stream(address, body, signal, ({ t, ids, shown }) => {
    Object.assign(result, { t, ids });
    Object.assign(result.shown, shown);
    showNoise();
  });
});

function offerNoises() {
  const select = $("form-noise").elements.noise;
  select.replaceChildren(...(model.can_denoise_from ? [make("option", { value: "" }, `own (${model.method})`)] : []),
    ...model.noises.map((name) => make("option", {}, name)));
}

function startNoise() {
  $("form-back").elements.moment.addEventListener("input", showNoise);
  if (kept.inputs.noise?.text === undefined) $("clean").value = EXAMPLES.noise;
}

// ---- the schedule ---------------------------------------------------------------------------------------------------

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A chart with axes; `plot` gets functions from values to coordinates.
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

// The next round number with one digit.
function rounded(v) {
  const unit = 10 ** Math.floor(Math.log10(v));
  return unit * [1, 2, 4, 5, 10].find((digit) => digit * unit >= v);
}

const tidy = (v) => Number(v.toFixed(Math.abs(v) < 10 ? 2 : 0)).toString();

function drawSchedule(result) {
  const figures = [], names = Object.keys(result.curves);
  if (!names.length) {
    return $("charts").replaceChildren(make("p", {}, `${model.method} has no noise schedule α(t).`));
  }
  const [whole, token] = model.image ? ["an image", "pixel"] : ["a text", "token"];
  const timeAxis = `t (0 is ${model.image ? "the image" : "text"}, 1 is noise)`;
  const learned = result.exponents.length ? ` (the mean over ${token}s)` : "";
  figures.push(chart(`Share of ${whole} that is left at time t${learned}${names.length > 1 ? `: ${names.join("; ")}` : ""}`,
    { xs: [0, 1], ys: [0, 1], x: timeAxis, y: "α(t)" }, (at, up) => names.map((name, i) => svg("path", {
      class: i ? "curve second" : "curve",
      d: result.curves[name].map((v, k) => `${k ? "L" : "M"}${at(result.t[k]).toFixed(1)} ${up(v).toFixed(1)}`).join(""),
    }))));
  const { counts } = result, most = rounded(Math.max(...counts));
  const what = model.variable_length ? "inserted" : "written";
  const tokens = model.image ? "Pixels" : "Tokens";
  figures.push(chart(`${tokens} ${what} at each of ${counts.length} steps, on average, in ${whole} of ${result.length}`,
    { xs: [0.5, counts.length + 0.5], ys: [0, most], x: `step, 1 to ${counts.length}`, y: `${token}s`, ticks: false }, (at, up) =>
      counts.map((v, i) => svg("rect", { class: "bars", x: at(i + 0.6), width: Math.max(0.5, at(i + 1.4) - at(i + 0.6)), y: up(v),
        height: Math.max(0, up(0) - up(v)) }, svg("title", {}, `step ${i + 1}: ${tidy(v)} ${token}s`)))));
  if (result.exponents.length) {
    const some = result.exponents, values = some.map((pair) => pair[1]), part = some.length < result.tokens;
    const low = Math.min(...values), high = Math.max(...values);
    figures.push(chart(
      `Learned exponents w of α(t) = 1 − t^w, from the tokens revealed first to the last${part ? " (both ends)" : ""}`,
      { xs: [-0.5, some.length - 0.5], ys: [low - 0.05, high + 0.05], x: "token", y: "w", ticks: false }, (at, up) =>
        some.map(([name, w], i) => svg("text", { class: "token", x: at(i), y: up(w) + 4 }, name,
          svg("title", {}, `${name}: ${w.toFixed(3)}`)))));
  }
  $("charts").replaceChildren(...figures);
}

let drawn = null;
const askSchedule = (form) => ({ path: "api/schedule", body: { model: model.name, steps: form.steps } });

onRun("schedule", askSchedule, async ({ path, body }, signal) => {
  drawn = await (await request(path, body, signal)).json();
  drawSchedule(drawn);
});

function startSchedule() {
  new ResizeObserver(() => { if (drawn && $("charts").clientWidth) drawSchedule(drawn); }).observe($("view-schedule"));
}

// ---- samplers side by side ------------------------------------------------------------------------------------------

function showResults() {
  const { lines = {} } = resultOf("samplers") ?? {};
  $("results").replaceChildren(...Object.entries(lines).map(([name, line]) => {
    const done = line.calls !== undefined;
    const cost = done ? `${line.calls} network calls, ${line.seconds.toFixed(2)} s` : "working…";
    const pictures = make("div", { className: "pictures" });
    if (line.rows) showPictures(pictures, line.rows);
    return make("article", { className: "result" }, make("h3", {}, name),
      make("div", { className: "cost" }, cost), make("div", { className: "soft" }, `It ${distributionOf(name)}.`),
      line.rows ? pictures : make("p", { className: done ? "text" : "text draft" }, done ? line.text : line.draft));
  }));
}

const distributionOf = (name) => model.samplers.find((sampler) => sampler.name === name)?.distribution ?? "does not serve this model";

function askSamplers(form) {
  if (!form.samplers.length) throw new Error("Choose at least one sampler.");
  const { sampler, ...options } = sampling(form);
  const task = model.image ? { images: form.images } : { template: form.template, length: form.length };
  return { path: "api/compare", body: { ...options, ...task, samplers: form.samplers } };
}

onRun("samplers", askSamplers, async ({ path, body }, signal) => {
  const { lines } = kept.results.samplers = { model: body.model, lines: {} };
  try {
    await stream(path, body, signal, (line) => {
      lines[line.sampler] = line;
      showResults();
    });
  } finally {
    for (const name of Object.keys(lines)) if (lines[name].calls === undefined) delete lines[name];
    showResults();
  }
});

// ---- models side by side --------------------------------------------------------------------------------------------

function showWritten() {
  const { lines = {} } = resultOf("models") ?? {};
  $("written").replaceChildren(...Object.entries(lines).map(([name, line]) => {
    const done = line.calls !== undefined;
    const cost = done ? `${line.method}, ${line.calls} network calls, ${line.seconds.toFixed(2)} s` : "working…";
    return make("article", { className: "result" }, make("h3", {}, name), make("div", { className: "cost" }, cost),
      make("p", { className: done ? "text" : "text draft" }, done ? line.text : line.draft));
  }));
}

function askModels(form) {
  if (!form.samplers.length) throw new Error("Choose at least one model.");
  return { path: "api/side_by_side", body: { model: model.name, models: form.samplers, length: form.tokens, seed: form.seed } };
}

onRun("models", askModels, async ({ path, body }, signal) => {
  const { lines } = kept.results.models = { model: body.model, lines: {} };
  try {
    await stream(path, body, signal, (line) => {
      lines[line.name] = line;
      showWritten();
    });
  } finally {
    for (const name of Object.keys(lines)) if (lines[name].calls === undefined) delete lines[name];
    showWritten();
  }
});

// The text models; the last three are selected.
function offerModels(list) {
  const chosen = new Set(kept.inputs.models?.samplers ?? list.slice(-3).map(({ name }) => name));
  $("choose-models").replaceChildren($("choose-models").querySelector("legend"), ...list.map(({ name, method }) =>
    make("label", { className: "check", title: method }, make("input", { type: "checkbox", value: name, checked: chosen.has(name) }), name)));
}

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
  document.title = `${$(`head-${view}`).innerText} · unnoise studio`;
  if (view === "noise" && model && !model.image && !path() && !jobs.noise.isRunning()) $("form-noise").requestSubmit();
  if (view === "schedule" && model && !drawn && !jobs.schedule.isRunning()) $("form-schedule").requestSubmit();
}

// ---- the model ------------------------------------------------------------------------------------------------------

let opening = 0; // number of selections of a model; responses to earlier ones are ignored

// Disable the page until a model is open, and hide the results of other models.
async function openModel(name) {
  const turn = opening += 1;
  await Promise.all(Object.values(jobs).map((job) => job.stop()));
  model = null;
  showModel();
  $("about").textContent = `Opening ${name}…`;
  try {
    const found = await (await request(`api/models/${encodeURIComponent(name)}`)).json();
    if (turn !== opening) return;
    model = found;
  } catch (error) {
    if (turn !== opening) return;
    $("about").textContent = "";
    $("model-error").textContent = `${error.message} Choose another model.`;
    $("model-error").hidden = false;
    return;
  }
  kept.model = name;
  $("about").textContent = aboutModel();
  offerSamplers();
  offerLabels();
  offerNoises();
  for (const view of VIEWS) {
    restoreInputs(view);
    if (view !== "samplers") showSamplerFields(view);
    restoreInputs(view);
  }
  fitSampling();
  fitInputs();
  VIEWS.forEach(remember);
  showModel();
}

// Update the page for the selected model, if any.
function showModel() {
  $("model-error").hidden = true;
  $("main").inert = !model;
  document.body.dataset.model = model?.name ?? "";
  document.body.dataset.kind = model?.image ? "image" : "text";
  for (const button of document.querySelectorAll(".run")) button.disabled = !model;
  const why = !model || model.corrects ? "" : model.image ? "This is a model of images: there is no spelling to check."
    : "This model cannot check spelling: it needs a list of words, and masked or uniform noise.";
  $("no-spelling").textContent = why;
  $("no-spelling").hidden = !why;
  if (why) $("form-spelling").querySelector(".run").disabled = true;
  drawn = null;
  $("charts").replaceChildren();
  restoreChain();
  showSource();
  showInfill();
  restoreSpelling();
  showNoise();
  showResults();
  showWritten();
  for (const view of VIEWS) showStatus(view, resultOf(view)?.stopped ? "Stopped." : "");
}

function aboutModel() {
  const { title, image, length, codec, variable_length, parameters } = model;
  const size = parameters >= 1e6 ? `${(parameters / 1e6).toFixed(1)} million` : parameters.toLocaleString("en");
  const channels = image?.channels > 1 ? ` in ${image.channels} channels` : "";
  const what = image ? `Images of ${image.width} × ${image.height} pixels${channels}, ${image.levels} levels`
    : `${variable_length ? "Texts of at most" : "Texts of"} ${length} tokens (${codec})`;
  const advice = Object.entries(model.sampling).map(([name, value]) => `${name.replace("_", "-")} ${value}`).join(", ");
  return `${title}. ${what}, ${size} parameters.${advice && ` It recommends ${advice}.`}`;
}

function offerSamplers() {
  for (const select of document.querySelectorAll("select[name=sampler]")) {
    const before = select.value;
    select.replaceChildren(make("option", { value: "" }, `own (${model.own_sampler})`),
      ...model.samplers.map((sampler) => make("option", { value: sampler.name, title: sampler.distribution }, sampler.name)));
    if (model.samplers.some((sampler) => sampler.name === before)) select.value = before;
  }
  const chosen = new Set(["ancestral", "confidence", "entropy-bounded", model.own_sampler]);
  $("choose").replaceChildren($("choose").querySelector("legend"), ...model.samplers.map(({ name, distribution }) =>
    make("label", { className: "check", title: distribution }, make("input", { type: "checkbox", value: name, checked: chosen.has(name) }), name)));
}

function offerLabels() {
  for (const select of document.querySelectorAll("select[name=label]")) {
    select.replaceChildren(make("option", { value: "" }, "any"), ...model.labels.map((name) => make("option", {}, name)));
  }
  for (const label of document.querySelectorAll(".label")) {
    label.hidden = !model.labels.length || (label.classList.contains("guidance") && !model.guidance);
  }
}

// Replace the recommendations of the last model by those of this one; keep the user's choices.
function fitSampling() {
  const plain = { steps: 64, temperature: 1, top_p: 1 }, before = kept.sampling ?? plain, now = { ...plain, ...model.sampling };
  now.steps = Math.min(now.steps, MOST_STEPS);
  for (const name of Object.keys(plain)) {
    for (const field of document.querySelectorAll(`.sampling input[name=${name}]`)) {
      if (Number(field.value) === before[name]) field.value = now[name];
      if (field.validity.stepMismatch) field.step = "any";
    }
  }
  kept.sampling = { steps: now.steps, temperature: now.temperature, top_p: now.top_p };
}

// Replace the length of the last model by the length of this one, and limit all numbers.
function fitInputs() {
  for (const field of document.querySelectorAll("input[name=length]")) {
    if (!field.value || Number(field.value) === kept.length || Number(field.value) > model.length) field.value = model.length;
    field.max = model.length;
  }
  kept.length = model.length;
  const most = model.image?.most ?? 8;
  for (const [name, limit] of [["images", most], ["variants", Math.min(8, most)]]) {
    for (const field of document.querySelectorAll(`input[name=${name}]`)) {
      field.max = limit;
      if (Number(field.value) > limit) field.value = limit;
    }
  }
  const blanks = model.variable_length ? "[GAP] for missing text" : "[MASK] for each blank token";
  for (const field of document.querySelectorAll("textarea[name=template]")) {
    field.placeholder = `empty, or a text with ${blanks}`;
  }
}

// ---- start ----------------------------------------------------------------------------------------------------------

async function start() {
  if (location.search) history.replaceState(null, "", location.pathname + location.hash); // the token is now in a cookie
  for (const place of document.querySelectorAll(".sampling")) place.append($("sampling").content.cloneNode(true));
  $("form-samplers").querySelector(".pick").remove();
  for (const view of ["noise", "models"]) {
    $(`form-${view}`).querySelector(".seed").append(...$("sampling").content.querySelector(".seed").cloneNode(true).childNodes);
  }
  for (const view of VIEWS) {
    restoreInputs(view);
    const form = $(`form-${view}`);
    form.elements.sampler?.addEventListener("change", () => showSamplerFields(view));
    form.addEventListener("input", () => remember(view));
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    form.querySelector(".dice")?.addEventListener("click", () => {
      form.elements.seed.value = Math.floor(1e6 * Math.random());
      remember(view);
    });
  }
  startChain();
  startInfill();
  startSpelling();
  startNoise();
  startSchedule();
  addEventListener("hashchange", showView);
  showView();
  let list;
  try { list = await (await request("api/models")).json(); } catch (error) { return showError(error.message); }
  const names = list.models.map((one) => one.name), select = $("model");
  select.replaceChildren(...list.models.map(({ name, method }) => make("option", { value: name }, name === method ? name : `${name} (${method})`)));
  offerModels(list.models.filter(({ text }) => text));
  select.value = names.includes(kept.model) ? kept.model : list.default;
  select.onchange = async () => { await openModel(select.value); showView(); };
  await openModel(select.value);
  showView();
  for (const [view, task] of Object.entries(underWay)) {
    if (jobs[view]?.isRunning()) continue;
    if (jobs[view] && task.body?.model === model?.name) jobs[view].start(task); else keepUnderWay(view, null);
  }
  document.body.dataset.ready = "true";
}

start();
