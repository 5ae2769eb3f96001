// The document: tokens coloured by their reach, and what the chosen one sees.
if (document.getElementById("documents")) {
  const data = JSON.parse(document.getElementById("documents").textContent);
  const part = (id) => document.getElementById(id);
  const list = part("tokens"), sight = part("sight"), table = part("reaches"), map = part("map");
  const choice = { view: part("view"), layer: part("layer"), head: part("head") };
  const MEAN = "mean";

  const unpack = (packed, count) => {
    if (typeof packed === "number") return new Int16Array(count).fill(packed);
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    return Int16Array.from({ length: count }, (_, place) => view.getInt16(2 * place, true));
  };

  // A head's intervals are stored only where they are not simply its reach to both sides.
  const readHead = (head, count, all) => {
    const reach = Float64Array.from(unpack(head.reach, count), (units) => units * head.unit);
    const low = new Int32Array(count), high = new Int32Array(count);
    const left = "left" in head ? unpack(head.left, count) : null;
    const right = "right" in head ? unpack(head.right, count) : null;
    for (let i = 0; i < count; i++) {
      const side = Math.floor(reach[i] + 1e-6);
      low[i] = left ? i - left[i] : Math.max(0, i - side);
      high[i] = right ? i + right[i] : Math.min(all - 1, i + side);
    }
    return { reach, low, high };
  };

  let view, text, layers, count, isGlobal, spans = [], span = [0, 1];
  let chosen = -1, pinned = -1;

  const shownLayers = () =>
    choice.layer.value === MEAN ? layers : [layers[Number(choice.layer.value)]];
  const shownHeads = () => shownLayers().flatMap((layer) =>
    choice.head.value === MEAN ? layer : layer.slice(Number(choice.head.value)).slice(0, 1));
  const meanReach = (heads, i) => heads.reduce((sum, head) => sum + head.reach[i], 0) / heads.length;
  const say = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 100 ? 1 : 0 });
  const quoted = (i) => `“${(text.tokens[i] || "…").trim() || "space"}”`;

  const fill = (select, names, wanted) => {
    select.replaceChildren(...names.map(([value, name]) => new Option(name, value)));
    select.value = names.some(([value]) => String(value) === wanted) ? wanted : MEAN;
  };

  const open = (number) => {
    view = data.views[number];
    text = data.texts[view.text];
    count = text.tokens.length;
    layers = view.layers.map((layer) => layer.heads.map((head) => readHead(head, count, text.of)));
    isGlobal = new Uint8Array(count);
    for (const place of text.global) isGlobal[place] = 1;
    const heads = Math.max(...layers.map((layer) => layer.length));
    const numbers = (many, name) => Array.from({ length: many }, (_, at) => [at, `${name} ${at + 1}`]);
    fill(choice.layer, [[MEAN, "all layers"], ...numbers(layers.length, "layer")], choice.layer.value);
    fill(choice.head, [[MEAN, "mean over heads"], ...numbers(heads, "head")], choice.head.value);
    const asked = new Set(text.question), whole = new Set(text.global);
    spans = text.tokens.map((token, at) => {
      const element = document.createElement("span");
      element.className = "token" + (asked.has(at) ? " asked" : "") + (whole.has(at) ? " whole" : "");
      if (view.answer && at >= view.answer.start && at <= view.answer.end) element.className += " answer";
      element.id = `token-${at}`;
      element.setAttribute("role", "option");
      element.textContent = token;
      return element;
    });
    list.replaceChildren(...spans);
    if (count < text.of) {
      const rest = document.createElement("em");
      rest.textContent = ` … the first ${count.toLocaleString("en")} of ${text.of.toLocaleString("en")} tokens`;
      list.append(rest);
    }
    const there = { whole: text.global.length, asked: text.question.length, answer: view.answer?.end >= 0 };
    for (const [name, any] of Object.entries(there)) {
      document.querySelector(`.legend .${name}`).hidden = !any;
    }
    if (chosen >= count) chosen = pinned = -1;
  };

  const colourAll = () => {
    const heads = shownHeads();
    const means = spans.map((_, i) => (heads.length ? meanReach(heads, i) : 0));
    const sorted = [...means].sort((a, b) => a - b);
    // One token that looks very far would leave all others without colour.
    span = [sorted[0], Math.max(sorted[Math.floor(0.98 * (count - 1))], sorted[0] + 1e-9)];
    list.classList.remove("looking");
    spans.forEach((element, i) => {
      const share = Math.min(1, Math.max(0, (means[i] - span[0]) / (span[1] - span[0])));
      element.classList.remove("seen", "chosen");
      element.style.setProperty("--t", Math.round(100 * share));
    });
    part("reach-low").textContent = `reach ${say(span[0])}`;
    part("reach-high").textContent = say(span[1]);
  };

  // How many of the heads see each token, from token i.
  const counted = (heads, i, seen) => {
    seen.fill(0);
    for (const head of heads) {
      const first = isGlobal[i] ? 0 : head.low[i], last = isGlobal[i] ? count - 1 : head.high[i];
      if (last < first) continue;
      seen[first] += 1;
      if (last + 1 < count) seen[last + 1] -= 1;
    }
    for (let j = 1; j < count; j++) seen[j] += seen[j - 1];
    return seen;
  };

  const describe = (i) => {
    const heads = shownHeads();
    const where = [
      choice.layer.value === MEAN ? "all layers" : `layer ${Number(choice.layer.value) + 1}`,
      choice.head.value === MEAN ? "mean over heads" : `head ${Number(choice.head.value) + 1}`,
    ].join(", ");
    const strong = document.createElement("strong");
    strong.textContent = `${quoted(i)}, token ${i + 1} of ${text.of}`;
    let told = ` (${where}): `;
    if (isGlobal[i]) told += "a global token, which sees all tokens and is seen by all.";
    else if (!heads.length) told += "this layer has no such head.";
    else {
      const first = Math.min(...heads.map((head) => head.low[i]));
      const last = Math.max(...heads.map((head) => head.high[i]));
      const many = heads.reduce((sum, head) => sum + Math.max(0, head.high[i] - head.low[i] + 1), 0);
      told += `reach ${say(meanReach(heads, i))}, sees ${say(many / heads.length)} tokens${heads.length > 1 ? " in the mean" : ""}`;
      if (last >= first) told += `, from ${quoted(first)} (${first + 1}) to ${quoted(last)} (${last + 1})`;
      if (text.globals) told += `, and the ${text.globals} global token${text.globals > 1 ? "s" : ""}`;
      told += ".";
    }
    sight.replaceChildren(strong, told);
  };

  const cell = (name, value, attributes = {}) => {
    const element = document.createElement(name);
    element.textContent = value;
    for (const [key, set] of Object.entries(attributes)) element.setAttribute(key, set);
    return element;
  };

  const tabulate = (i) => {
    const many = Math.max(...layers.map((layer) => layer.length));
    const body = document.createElement("table"), top = document.createElement("tr");
    const caption = cell("caption", i < 0 ? "Mean reach of all tokens" : "Reach of this token");
    top.append(cell("th", "layer", { scope: "col" }), cell("th", "mean", { scope: "col" }));
    for (let h = 0; h < many; h++) top.append(cell("th", h ? h + 1 : "head 1", { scope: "col", "aria-label": `head ${h + 1}` }));
    body.append(caption, top);
    layers.forEach((layer, at) => {
      const row = document.createElement("tr");
      const values = layer.map((head) =>
        i < 0 ? head.reach.reduce((sum, value) => sum + value, 0) / count : head.reach[i]);
      const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
      row.append(cell("th", at + 1, { scope: "row", title: view.layers[at].mechanism }));
      [mean, ...values].forEach((value, column) => {
        const share = Math.min(1, Math.max(0, (value - span[0]) / (span[1] - span[0])));
        const element = cell("td", say(value), { style: `--t: ${Math.round(100 * share)}` });
        const own = column === 0 ? MEAN : String(column - 1);
        if (choice.layer.value === String(at) && choice.head.value === own) element.className = "current";
        row.append(element);
      });
      body.append(row);
    });
    table.replaceChildren(body);
  };

  let drawn = null;
  const drawMap = () => {
    const side = Math.min(count, 480), step = count / side;
    drawn = document.createElement("canvas");
    drawn.width = drawn.height = side;
    const pen = drawn.getContext("2d"), image = pen.createImageData(side, side);
    const colours = (name) => {
      pen.fillStyle = getComputedStyle(part(name)).color;
      pen.fillRect(0, 0, 1, 1);
      return pen.getImageData(0, 0, 1, 1).data;
    };
    const ink = colours("map"), heads = shownHeads(), seen = new Int32Array(count);
    const whole = colours("map-global");
    for (let y = 0; y < side; y++) {
      const i = Math.floor(y * step);
      counted(heads, i, seen);
      for (let x = 0; x < side; x++) {
        const j = Math.floor(x * step), at = 4 * (y * side + x);
        const crossing = isGlobal[i] || isGlobal[j];
        image.data.set(crossing ? whole : ink, at);
        const share = heads.length ? seen[j] / heads.length : 0;
        image.data[at + 3] = crossing ? 130 : Math.round(225 * share);
      }
    }
    pen.putImageData(image, 0, 0);
  };

  const showMap = () => {
    const pen = map.getContext("2d"), side = map.width;
    pen.clearRect(0, 0, side, side);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(drawn, 0, 0, side, side);
    if (chosen >= 0) {
      const y = ((chosen + 0.5) / count) * side;
      pen.strokeStyle = getComputedStyle(document.body).color;
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(0, y);
      pen.lineTo(side, y);
      pen.stroke();
    }
    map.setAttribute("aria-label", `Map of which of ${count} tokens each token sees: ${view.name}`);
  };

  const look = (i) => {
    if (i === chosen && i < 0) return;
    chosen = i;
    list.removeAttribute("aria-activedescendant");
    if (i < 0) {
      colourAll();
      const answer = view.answer;
      const quote = answer && "text" in answer ? `“${answer.text}”` : "";
      const rest = answer && answer.rest.length ? ` (${answer.rest.join(", ")})` : "";
      sight.textContent = "Point at a token, tap it, or use the arrow keys."
        + (quote || rest ? ` The model's answer here: ${quote}${rest}.` : "");
    } else {
      const heads = shownHeads(), seen = counted(heads, i, new Int32Array(count));
      list.classList.add("looking");
      spans.forEach((element, j) => {
        const share = heads.length ? seen[j] / heads.length : 0;
        element.classList.toggle("seen", share > 0);
        element.classList.toggle("chosen", j === i);
        element.setAttribute("aria-selected", j === i);
        // A few heads are seen to be more than none.
        element.style.setProperty("--t", share ? Math.round(25 + 75 * share) : 0);
      });
      list.setAttribute("aria-activedescendant", spans[i].id);
      describe(i);
    }
    tabulate(i);
    showMap();
  };

  const keep = () => remember({
    token: pinned < 0 ? null : pinned + 1,
    setup: choice.view.value === String(data.first) ? null : Number(choice.view.value) + 1,
    layer: choice.layer.value === MEAN ? null : Number(choice.layer.value) + 1,
    head: choice.head.value === MEAN ? null : Number(choice.head.value) + 1,
  });
  const pin = (i) => { pinned = i; look(i); keep(); };

  const refresh = () => {
    const before = chosen;
    chosen = -2;
    colourAll();
    drawMap();
    look(before);
  };

  const tokenAt = (event) => spans.indexOf(event.target.closest(".token"));
  // Where a token lies: by its widest part, since a space before it may hang on the line above.
  const placeOf = (i) => {
    const box = [...spans[i].getClientRects()].reduce((a, b) => (b.width > a.width ? b : a));
    return { line: Math.round(box.top), across: (box.left + box.right) / 2 };
  };
  // The nearest token of the next line; several steps keep to the column they began in.
  let column = null;
  const beside = (i, way) => {
    const from = placeOf(i);
    column ??= from.across;
    let best = i, reached = null, least = Infinity;
    for (let j = i + way; j >= 0 && j < count; j += way) {
      const place = placeOf(j);
      if (Math.abs(place.line - from.line) < 4) continue;
      reached ??= place.line;
      if (Math.abs(place.line - reached) >= 4) break;
      if (Math.abs(place.across - column) < least) {
        best = j;
        least = Math.abs(place.across - column);
      }
    }
    return best;
  };

  list.addEventListener("pointerover", (event) => {
    if (event.pointerType === "mouse" && tokenAt(event) >= 0) look(tokenAt(event));
  });
  list.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") look(pinned); });
  list.addEventListener("click", (event) => {
    const i = tokenAt(event);
    column = null;
    pin(i === pinned ? -1 : i);
  });
  list.addEventListener("keydown", (event) => {
    const i = Math.max(0, chosen);
    const next = {
      ArrowLeft: () => (chosen < 0 ? 0 : i - 1), ArrowRight: () => (chosen < 0 ? 0 : i + 1),
      ArrowUp: () => beside(i, -1), ArrowDown: () => beside(i, 1),
      PageUp: () => i - 50, PageDown: () => i + 50,
      Home: () => 0, End: () => count - 1, Escape: () => -1,
    }[event.key];
    if (!next) return;
    event.preventDefault();
    if (event.key !== "ArrowUp" && event.key !== "ArrowDown") column = null;
    const to = event.key === "Escape" ? -1 : Math.min(count - 1, Math.max(0, next()));
    pin(to);
    if (to >= 0) spans[to].scrollIntoView({ block: "nearest" });
  });
  const rowAt = (event) => {
    const box = map.getBoundingClientRect();
    return Math.min(count - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * count)));
  };
  map.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") look(rowAt(event)); });
  map.addEventListener("pointerleave", () => look(pinned));
  map.addEventListener("click", (event) => pin(rowAt(event)));
  choice.view.addEventListener("change", () => { open(Number(choice.view.value)); refresh(); keep(); });
  choice.layer.addEventListener("change", () => { refresh(); keep(); });
  choice.head.addEventListener("change", () => { refresh(); keep(); });
  document.addEventListener("colours", () => { drawMap(); showMap(); });

  const wanted = (name, most) => {
    const number = Number(address.get(name));
    return Number.isInteger(number) && number >= 1 && number <= most ? number - 1 : null;
  };
  const first = wanted("setup", data.views.length) ?? data.first;
  choice.view.value = first;
  open(first);
  const layer = wanted("layer", layers.length), head = wanted("head", choice.head.options.length - 1);
  if (layer !== null) choice.layer.value = layer;
  if (head !== null) choice.head.value = head;
  pinned = wanted("token", count) ?? -1;
  chosen = pinned;
  refresh();
  if (pinned >= 0) {
    list.focus({ preventScroll: true });
    spans[pinned].scrollIntoView({ block: "center" });
  }
}
document.documentElement.dataset.ready = "yes";
