// Values of curves under the pointer, a finger, or the arrow keys.
{
  const say = (value) => {
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(3);
    return value.toLocaleString("en", { maximumSignificantDigits: size >= 1e4 ? 7 : 5 });
  };
  const make = (name, attributes) => {
    const element = document.createElementNS(document.querySelector("svg").namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const nearest = (values, wanted) => {
    let low = 0, high = values.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (values[middle] < wanted) low = middle; else high = middle;
    }
    return Math.abs(values[low] - wanted) <= Math.abs(values[high] - wanted) ? low : high;
  };
  const follow = (chart) => {
    const lines = JSON.parse(chart.dataset.lines);
    if (!lines.length) return;
    lines.forEach((line, at) => { line[2] ??= lines[at - 1][2]; });
    const [x0, x1, left, right] = chart.dataset.x.split(" ").map(Number);
    const [y0, y1, bottom, top, log] = chart.dataset.y.split(" ").map(Number);
    const placed = (value) => {
      const share = log ? Math.log(value / y0) / Math.log(y1 / y0) : (value - y0) / (y1 - y0);
      return bottom + share * (top - bottom);
    };
    const all = [...new Set(lines.flatMap((line) => line[2]))].sort((a, b) => a - b);
    const width = chart.viewBox.baseVal.width;
    const group = make("g", {});
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    tip.setAttribute("role", "status");
    chart.append(group);
    chart.after(tip);
    let at = all.length - 1;
    const hide = () => { group.replaceChildren(); tip.hidden = true; };
    const show = () => {
      const x = all[at];
      const place = left + ((x - x0) / (x1 - x0)) * (right - left);
      group.replaceChildren(make("path", { class: "guide", d: `M${place},${top}V${bottom}` }));
      const heading = document.createElement("b");
      heading.textContent = `${chart.dataset.label} ${say(x)}`;
      tip.replaceChildren(heading);
      for (const [name, colour, xs, ys] of lines) {
        if (x < xs[0] || x > xs[xs.length - 1]) continue;
        const value = ys[nearest(xs, x)];
        group.append(make("circle", { class: `dot c${colour}`, cx: place, cy: placed(value), r: 4 }));
        const row = document.createElement("span"), label = document.createElement("i");
        const key = document.createElement("i");
        key.className = `key c${colour}`;
        label.append(key, name);
        row.append(label, say(value));
        tip.append(row);
      }
      tip.hidden = false;
      const across = (place / width) * chart.clientWidth + chart.offsetLeft;
      const room = chart.parentElement.clientWidth;
      const over = across + 12 + tip.offsetWidth > room;
      tip.style.left = `${Math.max(4, over ? across - 12 - tip.offsetWidth : across + 12)}px`;
      tip.style.top = `${chart.offsetTop + 8}px`;
    };
    const point = (event) => {
      const box = chart.getBoundingClientRect();
      const place = ((event.clientX - box.left) / box.width) * width;
      at = nearest(all, x0 + ((place - left) / (right - left)) * (x1 - x0));
      show();
    };
    chart.addEventListener("pointermove", point);
    chart.addEventListener("pointerdown", point);
    chart.addEventListener("pointerleave", hide);
    chart.addEventListener("blur", hide);
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") hide();
      if (step === undefined) return;
      event.preventDefault();
      at = Math.min(all.length - 1, Math.max(0, tip.hidden && Math.abs(step) === 1 ? at : at + step));
      show();
    });
  };
  document.querySelectorAll("svg.curves").forEach(follow);
}
