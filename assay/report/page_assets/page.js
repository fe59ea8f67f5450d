"use strict";
/* The page of a report. The payload is text from anywhere: it reaches the document through textContent alone. */
(() => {
  // ------------------------------------------------------------------------------------------------ elements
  const SVG = "http://www.w3.org/2000/svg";
  const started = performance.now();
  const byId = (id) => document.getElementById(id);

  function fill(node, options, children) {
    for (const [name, value] of Object.entries(options || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (name === "text") node.textContent = value;
      else if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
      else if (name === "style") for (const [key, item] of Object.entries(value)) node.style.setProperty(key, item);
      else if (name === "value") node.value = value;
      else node.setAttribute(name, value === true ? "" : String(value));
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
    return node;
  }
  const el = (tag, options, ...children) => fill(document.createElement(tag), options, children);
  const draw = (tag, options, ...children) => fill(document.createElementNS(SVG, tag), options, children);

  // ------------------------------------------------------------------------------------------------ words
  const CONTROL = new RegExp(
    "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u2064" +
      "\\u2066-\\u2069\\ufeff\\ufff9-\\ufffb]|\\udb40[\\udc00-\\udc7f]|[\\ud800-\\udbff](?![\\udc00-\\udfff])" +
      "|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]", "g");

  const NAMES = ("NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS " +
    "RS US").split(" ");

  function symbol(found) {
    const code = found.codePointAt(0);
    if (code < 32) return String.fromCharCode(0x2400 + code);
    if (code === 127) return "\u2421";
    return "U+" + code.toString(16).toUpperCase().padStart(4, "0");
  }
  const asText = (value) => (typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value));
  const visible = (text) => text.replace(CONTROL, symbol);

  function marked(text) {
    const parts = [];
    let end = 0;
    for (const found of text.matchAll(CONTROL)) {
      if (found.index > end) parts.push(text.slice(end, found.index));
      parts.push(el("span", { class: "control", text: NAMES[found[0].charCodeAt(0)] || symbol(found[0]) }));
      end = found.index + found[0].length;
    }
    if (end < text.length) parts.push(text.slice(end));
    return parts;
  }

  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  function number(value, decimals) {
    if (!isNumber(value)) return "–";
    const size = Math.abs(value);
    if (size >= 1e7 || (size > 0 && size < 1e-4 && decimals === undefined)) return value.toExponential(2).replace("-", "−");
    const places = decimals === undefined ? Math.max(0, 3 - Math.floor(Math.log10(size || 1))) : decimals;
    let text = value.toFixed(Math.min(8, Math.max(0, places)));
    if (decimals === undefined && text.includes(".")) text = text.replace(/\.?0+$/, "");
    if (Number(text) === 0) text = text.replace("-", "");
    return text.replace("-", "−");
  }
  const decimalsFor = (low, high) => {
    const half = (high - low) / 2;
    if (!(half > 0)) return undefined;
    let places = Math.min(6, Math.max(0, Math.ceil(-Math.log10(half / 2) - 1e-9)));
    while (places < 6 && [low, high].some((end) => end !== 0 && Number(end.toFixed(places)) === 0)) places += 1;  // keep the sign
    return places;
  };
  // the decimals of a whole column: those of its narrowest interval, at most one more than the widest needs
  function evenPlaces(column) {
    const known = column.filter((one) => one && isNumber(one.low) && isNumber(one.high)).map((one) => decimalsFor(one.low, one.high)).filter((one) => one !== undefined);
    return known.length ? Math.min(Math.max(...known), Math.min(...known) + 1) : undefined;
  }
  function interval(value, low, high, even) {
    if (!isNumber(value)) return "–";
    if (!isNumber(low) || !isNumber(high)) return number(value, even);
    const places = even === undefined ? decimalsFor(low, high) : even;
    return `${number(value, places)} [${number(low, places)}, ${number(high, places)}]`;
  }
  function duration(seconds) {
    if (!isNumber(seconds)) return "–";
    if (seconds < 60) return `${number(seconds, seconds < 10 ? 1 : 0)} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
    return `${number(seconds / 3600, 1)} h`;
  }
  function many(value) {
    if (!isNumber(value)) return "–";
    for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (Math.abs(value) >= size) return `${number(value / size, value / size < 10 ? 2 : value / size < 100 ? 1 : 0)} ${unit}`;
    }
    return number(value);
  }
  const whole = (count) => count.toLocaleString("en-US");
  const plural = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
  const share = (value) => (isNumber(value) ? `${Math.round(value * 100)}%` : "–");
  const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

  // ------------------------------------------------------------------------------------------------ state
  let data = JSON.parse(byId("payload").textContent);
  byId("payload").textContent = "";
  const state = {
    task: null, hidden: new Set(), metric: null, axis: "step", seeds: false, smooth: 0, phases: "share",
    filter: { arm: "", seed: "", step: "", text: "", low: "", high: "", cut: false, fault: false },
    selected: null, colouring: "credit", verdict: "", kind: "", claim: "", allSettings: false,
  };
  let armNames = [];
  const COLOURS = 8;
  const place = (arm) => Math.max(0, armNames.indexOf(arm));
  const colour = (arm) => `var(--arm-${place(arm) % COLOURS})`;
  // neighbours differ in colour and in dashes, so that one line on top of another leaves both to be seen
  const DASHES = ["", "9 5", "2 4", "12 4 2 4", "5 3"];
  const dashes = (arm) => DASHES[(place(arm) + Math.floor(place(arm) / COLOURS)) % DASHES.length];
  const swatch = (arm) => el("span", { class: "swatch", style: { background: colour(arm) }, "aria-hidden": "true" });
  const shownArms = () => armNames.filter((arm) => !state.hidden.has(arm));
  const ofTask = (entry) => !state.task || !entry.task || entry.task === state.task;

  function prepare() {
    const named = data.arms.map((arm) => arm.name);
    const others = [...data.comparison.rows.map((row) => row.arm), ...(data.comparison.improvement || { arms: [] }).arms];
    armNames = [...new Set([...named, ...others])];
    if (!data.tasks.includes(state.task)) state.task = data.comparison.opens || data.tasks[0] || null;
    const counts = new Map();
    for (const sample of data.samples) {
      const run = data.runs[sample.run];
      const group = `${run.label}|${sample.step}`;
      const nth = counts.get(group) || 0;
      counts.set(group, nth + 1);
      sample.key = `${group}|${nth}`;
      sample.value = isNumber(sample.reward) ? sample.reward : isNumber(sample.return) ? sample.return : null;
    }
  }

  // ------------------------------------------------------------------------------------------------ charts
  const tip = byId("tip");
  const spoken = el("p", { class: "hidden-words", "aria-live": "polite" });
  document.body.append(spoken);

  function showTip(lines, x, y) {
    tip.replaceChildren(...lines.map((line) =>
      el("p", { class: line.head ? "tip-head" : "" }, line.arm !== undefined && swatch(line.arm),
        el("span", { text: visible(line.name).slice(0, 60) }), line.value !== undefined && el("b", { text: line.value }))));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, Math.min(innerHeight - box.height - 4, y - box.height / 2))}px`;
  }
  const hideTip = () => { tip.hidden = true; };

  function ticks(low, high, most) {
    const rough = (high - low) / Math.max(1, most);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.75) || rough;
    const found = [];
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) found.push(n * step);
    const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return found.map((at) => ({ at, label: Math.max(Math.abs(low), Math.abs(high)) >= 1e4 ? many(at) : number(at, places) }));
  }

  function extent(values, pad) {
    let low = Infinity, high = -Infinity;
    for (const value of values) if (isNumber(value)) { low = Math.min(low, value); high = Math.max(high, value); }
    if (low > high) return [0, 1];
    const room = high > low ? (high - low) * pad : Math.abs(low) * 0.1 || 1;
    return [low - room, high + room];
  }
  const path = (xs, ys, isStep) => {
    let text = "", pen = "M";
    for (let i = 0; i < xs.length; i += 1) {
      if (!isNumber(ys[i]) || !isNumber(xs[i])) { pen = "M"; continue; }
      if (isStep && pen === "L") text += `H${xs[i].toFixed(1)}`;
      text += `${pen}${xs[i].toFixed(1)} ${ys[i].toFixed(1)}`;
      pen = "L";
    }
    return text;
  };

  function legend(root, series, width) {
    let x = 0, y = 10;
    for (const one of series) {
      const full = visible(one.name), name = full.length > 44 ? `${full.slice(0, 43)}…` : full;
      const size = 34 + name.length * 6.7;
      if (x && x + size > width) { x = 0; y += 18; }
      root.append(draw("line", { x1: x, x2: x + 20, y1: y, y2: y, class: "line", "stroke-dasharray": one.dash, style: { stroke: one.colour } }),
        draw("text", { x: x + 26, y: y + 4, class: "legend", text: name }));
      x += size + 8;
    }
    return series.length ? y + 16 : 4;
  }

  function marker(nth, x, y, fill) {
    const shapes = ["M-3 0A3 3 0 1 0 3 0A3 3 0 1 0 -3 0Z", "M-2.7 -2.7H2.7V2.7H-2.7Z", "M0 -3.6L3.4 2.6H-3.4Z", "M0 -3.8L3.8 0L0 3.8L-3.8 0Z"];
    return draw("path", { d: shapes[nth % shapes.length], transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, style: { fill } });
  }

  let clips = 0;
  function lineChart(spec, width) {
    const height = spec.height || Math.round(Math.min(380, Math.max(260, width * 0.46)));
    const root = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", tabindex: 0, "aria-label": spec.label });
    const top = spec.bare ? 8 : legend(root, spec.series, width) + 8;
    const every = spec.series.flatMap((one) => [...one.y, ...(one.rows || []).flatMap((row) => row.y)]);
    const [yLow, yHigh] = spec.yRange || extent(every, 0.06);
    const [xLow, xHigh] = extent(spec.series.flatMap((one) => [...one.x, ...(one.rows || []).flatMap((row) => row.x)]), 0);
    const xEnd = xHigh > xLow ? xHigh : xLow + 1;
    const yTicks = ticks(yLow, yHigh, height < 160 ? 3 : 5);
    const left = Math.max(...yTicks.map((tick) => tick.label.length), 2) * 7 + (spec.yLabel ? 28 : 10);
    const right = width - 12, bottom = height - (spec.xLabel ? 42 : 24);
    const X = (value) => left + ((value - xLow) / (xEnd - xLow)) * (right - left);
    const Y = (value) => bottom - ((value - yLow) / (yHigh - yLow)) * (bottom - top);
    clips += 1;
    const clip = `clip-${clips}`;
    root.append(draw("clipPath", { id: clip }, draw("rect", { x: left, y: top - 2, width: right - left + 2, height: bottom - top + 4 })));
    for (const tick of yTicks) {
      root.append(draw("line", { x1: left, x2: right, y1: Y(tick.at), y2: Y(tick.at), class: "grid" }),
        draw("text", { x: left - 8, y: Y(tick.at) + 4, class: "tick", "text-anchor": "end", text: tick.label }));
    }
    const isCount = spec.xName === "step" || spec.xName === "decisions";
    for (const tick of ticks(xLow, xEnd, Math.max(2, Math.floor((right - left) / 80))).filter((one) => !isCount || Number.isInteger(one.at))) {
      const anchor = X(tick.at) > right - 12 ? "end" : "middle";
      root.append(draw("text", { x: X(tick.at), y: bottom + 18, class: "tick", "text-anchor": anchor, text: isCount && xEnd < 1e4 ? number(tick.at, 0) : tick.label }));
    }
    root.append(draw("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" }));
    if (spec.xLabel) root.append(draw("text", { x: (left + right) / 2, y: height - 6, class: "label", "text-anchor": "middle", text: spec.xLabel }));
    if (spec.yLabel) root.append(draw("text", { transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)`, class: "label", "text-anchor": "middle", text: visible(spec.yLabel) }));
    const body = draw("g", { "clip-path": `url(#${clip})` });
    root.append(body);
    for (const one of spec.series) {
      if (one.low) {
        const known = one.x.map((_, i) => i).filter((i) => isNumber(one.low[i]) && isNumber(one.high[i]));
        if (known.length > 1) {
          const xs = known.map((i) => X(one.x[i]));
          const there = path(xs, known.map((i) => Y(one.high[i])), spec.step);
          const back = spec.step ? known.map((i, n) => `${n ? `V${Y(one.low[known[known.length - 1 - n]]).toFixed(1)}` : `L${xs[xs.length - 1].toFixed(1)} ${Y(one.low[known[known.length - 1]]).toFixed(1)}`}${n < known.length - 1 ? `H${xs[xs.length - 1 - n].toFixed(1)}` : `H${xs[0].toFixed(1)}`}`).join("") :
            path([...xs].reverse(), known.map((i) => Y(one.low[i])).reverse()).replace("M", "L");
          body.append(draw("path", { d: `${there}${back}Z`, class: "band", style: { fill: one.colour } }));
        }
      }
      for (const row of one.rows || []) {
        body.append(draw("path", { d: path(row.x.map(X), row.y.map(Y)), class: "seed", style: { stroke: one.colour } }));
      }
    }
    for (const one of spec.series) {
      body.append(draw("path", { d: path(one.x.map(X), one.y.map(Y), spec.step), class: "line", "stroke-dasharray": one.dash, style: { stroke: one.colour } }));
      if (one.x.length < 40 && !spec.bare) {
        one.x.forEach((x, i) => isNumber(one.y[i]) && body.append(marker(place(one.arm), X(x), Y(one.y[i]), one.colour)));
      }
    }
    hover(root, spec, { X, Y, left, right, top, bottom, xLow, xEnd });
    return root;
  }

  function hover(root, spec, at) {
    const cross = draw("line", { class: "cross", "data-passing": true, y1: at.top, y2: at.bottom, visibility: "hidden" });
    const dots = draw("g", { "data-passing": true });
    root.append(cross, dots);
    const stops = [...new Set(spec.series.flatMap((one) => one.x))].filter(isNumber).sort((a, b) => a - b);
    let now = stops.length - 1;
    const show = (index, clientX, clientY) => {
      now = Math.max(0, Math.min(stops.length - 1, index));
      const x = stops[now];
      if (x === undefined) return [];
      cross.setAttribute("x1", at.X(x));
      cross.setAttribute("x2", at.X(x));
      cross.setAttribute("visibility", "visible");
      dots.replaceChildren();
      const lines = [{ head: true, name: `${spec.xName || "x"} ${x >= 1e4 ? whole(Math.round(x)) : number(x)}` }];
      for (const one of spec.series) {
        const i = nearest(one.x, x, (at.xEnd - at.xLow) / 50);
        if (i < 0 || !isNumber(one.y[i])) continue;
        dots.append(draw("circle", { cx: at.X(one.x[i]), cy: at.Y(one.y[i]), r: 3.5, class: "dot", style: { fill: one.colour } }));
        const seeds = one.count ? ` · ${plural(one.count[i], "seed")}` : "";
        lines.push({ arm: one.arm, name: one.arm ?? one.name, value: interval(one.y[i], one.low && one.low[i], one.high && one.high[i]) + seeds });
      }
      if (clientX !== undefined) showTip(lines, clientX, clientY);
      return lines;
    };
    const leave = () => { cross.setAttribute("visibility", "hidden"); dots.replaceChildren(); hideTip(); };
    const move = (event) => {
      const box = root.getBoundingClientRect();
      const x = at.xLow + (((event.clientX - box.left) * (root.viewBox.baseVal.width / box.width) - at.left) / (at.right - at.left)) * (at.xEnd - at.xLow);
      show(nearest(stops, x, Infinity), event.clientX, event.clientY);
    };
    root.addEventListener("pointermove", move);
    root.addEventListener("pointerdown", move);
    root.addEventListener("pointerleave", leave);
    root.addEventListener("blur", leave);
    root.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const box = root.getBoundingClientRect();
      const lines = show(now + step, box.left + box.width / 2, box.top + 40);
      spoken.textContent = lines.map((line) => `${line.name} ${line.value || ""}`).join(", ");
    });
  }

  function nearest(sorted, x, within) {
    let low = 0, high = sorted.length - 1;
    if (high < 0) return -1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= x) low = middle; else high = middle;
    }
    const best = Math.abs(sorted[low] - x) <= Math.abs(sorted[high] - x) ? low : high;
    return Math.abs(sorted[best] - x) <= within ? best : -1;
  }

  // a figure keeps its place on the page while what it shows is drawn again
  const figures = [];
  let figureCount = 0;
  function figure(name, title, render) {
    figureCount += 1;
    const host = el("div", { class: "chart" });
    const caption = el("figcaption");
    const save = el("button", { type: "button", class: "quiet save", text: "Save SVG", "aria-label": `Save ${title} as SVG` });
    const node = el("figure", { id: `figure-${name}` }, host, el("div", { class: "under" }, caption, save));
    const label = `Figure ${figureCount}. `;
    let width = 0;
    const again = () => {
      width = host.clientWidth || width || 720;
      const made = render(Math.max(260, Math.min(1100, width)));
      host.replaceChildren(made.node);
      caption.replaceChildren(el("b", { text: label }), ...[made.caption].flat());
      save.hidden = !(made.node instanceof SVGElement);
    };
    save.addEventListener("click", () => saveSvg(host.querySelector("svg"), name));
    new ResizeObserver(() => { if (Math.abs(host.clientWidth - width) > 1) again(); }).observe(host);
    figures.push(again);
    return node;
  }

  function standalone(svg) {
    const before = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    const copy = svg.cloneNode(true);
    const { width, height } = svg.viewBox.baseVal;
    const pairs = [[svg, copy]];
    const names = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "font-size", "font-weight", "visibility"];
    while (pairs.length) {
      const [from, to] = pairs.pop();
      const style = getComputedStyle(from);
      for (const name of names) to.setAttribute(name, style.getPropertyValue(name));
      to.removeAttribute("class");
      to.removeAttribute("style");
      [...from.children].forEach((child, i) => pairs.push([child, to.children[i]]));
    }
    copy.querySelectorAll("[data-passing]").forEach((node) => node.remove());
    copy.setAttribute("viewBox", `-10 -10 ${width + 20} ${height + 20}`);
    copy.setAttribute("width", width + 20);
    copy.setAttribute("height", height + 20);
    copy.setAttribute("xmlns", SVG);
    copy.setAttribute("font-family", "Helvetica, Arial, sans-serif");
    copy.prepend(draw("rect", { x: -10, y: -10, width: width + 20, height: height + 20, fill: "#ffffff" }));
    document.documentElement.dataset.theme = before || "auto";
    return new XMLSerializer().serializeToString(copy);
  }
  function saveSvg(svg, name) {
    const url = URL.createObjectURL(new Blob([standalone(svg)], { type: "image/svg+xml" }));
    const link = el("a", { href: url, download: `${name}.svg` });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  // ------------------------------------------------------------------------------------------------ sections
  const content = byId("content");
  const refreshers = [];
  function section(id, title, lede, ...children) {
    content.append(el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title`, text: title }),
      lede && el("p", { class: "lede", text: lede }), ...children));
    byId("toc").append(el("li", {}, el("a", { href: `#${id}`, text: title })));
  }
  function live(render, tag = "div", options = {}) {
    const host = el(tag, options);
    const again = () => host.replaceChildren(...[render()].flat().filter(Boolean));
    refreshers.push(again);
    return host;
  }
  const empty = (text) => el("p", { class: "empty", text });
  const redraw = () => { for (const again of figures) again(); };
  function refresh() {
    for (const again of refreshers) again();
    redraw();
  }

  // a select keeps its choice when its options are replaced
  function select(label, options, get, set) {
    const node = el("select", { on: { change: () => set(node.value) } });
    let shape = "";
    const again = () => {
      const entries = options();
      const now = JSON.stringify(entries);
      if (now !== shape) {
        shape = now;
        node.replaceChildren(...entries.map(([value, text]) => el("option", { value, text: visible(String(text)).slice(0, 80) })));
      }
      node.value = get();
      if (node.selectedIndex < 0) node.value = "";
    };
    again();
    refreshers.push(again);
    return el("label", { class: "field" }, el("span", { text: label }), node);
  }
  function toggle(label, get, set) {
    const node = el("input", { type: "checkbox", on: { change: () => set(node.checked) } });
    node.checked = get();
    return el("label", { class: "check" }, node, el("span", { text: label }));
  }

  // ------------------------------------------------------------------------------------------------ header
  function heading() {
    document.title = `${visible(data.title)} · Assay`;
    byId("title").replaceChildren(...marked(data.title));
    const states = ["finished", "running", "stopped"].map((name) => [data.runs.filter((run) => run.state === name).length, name]);
    const parts = [plural(data.runs.length, "run"), plural(data.arms.length, "arm"), plural(data.tasks.length, "task")];
    const words = states.filter(([count]) => count).map(([count, name]) => `${whole(count)} ${name}`);
    const verdicts = data.verdicts.length ? [plural(data.verdicts.length, "verdict")] : [];
    byId("summary").textContent = data.runs.length ? `${[...parts, ...verdicts].join(" · ")} — ${words.join(", ")}` : verdicts.join("");
    byId("answer").hidden = !data.comparison.answer;
    byId("answer").replaceChildren(...marked(data.comparison.answer || ""));
    const machine = data.machines[0] || {};
    const versions = ["python", "torch", "numpy"].filter((name) => machine[name]).map((name) => `${name} ${machine[name]}`);
    const cores = machine.cores ? `, ${machine.cores} cores` : "";
    const more = data.machines.length > 1 ? ` (and ${data.machines.length - 1} other)` : "";
    const facts = [
      ["Written", data.written],
      ["Machine", machine.platform && `${machine.platform}${cores}${machine.gpu ? `, ${asText(machine.gpu)}` : ""}${more}`],
      ["Versions", [`assay ${data.versions.length ? data.versions.join(", ") : data.assay}`, ...versions].join(" · ")],
    ];
    byId("facts").replaceChildren(...facts.filter(([, value]) => value).map(([name, value]) =>
      el("div", {}, el("dt", { text: name }), el("dd", {}, ...marked(String(value))))));
    const notes = data.notes.map((note) => el("li", {}, ...marked(note)));
    const open = byId("notes").querySelector("details");
    byId("notes").replaceChildren(...(notes.length ? [el("details", { class: "notes", open: open ? open.open : notes.length <= 4 },
      el("summary", { text: plural(notes.length, "note") + " on what was read" }), el("ul", {}, ...notes))] : []));
    byId("colophon").textContent = `Assay ${data.assay}. One file, no network. Intervals are at 95%.`;
  }

  function scope() {
    const tasks = data.tasks.length > 1 ? [select("Task", () => data.tasks.map((task) => [task, task]), () => state.task,
      (value) => { state.task = value; refresh(); })] : [];
    const chips = live(() => armNames.map((arm) => el("button", {
      type: "button", class: "chip", "aria-pressed": String(!state.hidden.has(arm)), "data-arm": arm, title: "Show or hide in charts",
      on: { click: () => { if (!state.hidden.delete(arm)) state.hidden.add(arm); refresh(); [...chips.children].find((chip) => chip.dataset.arm === arm).focus(); } },
    }, swatch(arm), el("span", { text: visible(arm).slice(0, 60) }))), "div", { class: "chips", role: "group", "aria-label": "Arms shown in charts" });
    byId("scope").append(...tasks, chips);
  }

  // ------------------------------------------------------------------------------------------------ comparison
  function intervalBar(value, low, high, from, to, arm, mark) {
    const width = 130, X = (at) => 6 + ((at - from) / (to - from || 1)) * (width - 12);
    const cut = (at) => Math.max(2, Math.min(width - 2, X(at)));
    const node = draw("svg", { viewBox: `0 0 ${width} 18`, width, height: 18, class: "interval", "aria-hidden": "true" },
      draw("line", { x1: 2, x2: width - 2, y1: 9, y2: 9, class: "grid" }));
    const stroke = arm === undefined ? "var(--ink)" : colour(arm);
    if (isNumber(mark)) node.append(draw("line", { x1: cut(mark), x2: cut(mark), y1: 1, y2: 17, class: "mark" }));
    if (isNumber(low) && isNumber(high)) node.append(draw("line", { x1: cut(low), x2: Math.max(cut(high), cut(low) + 0.5), y1: 9, y2: 9, class: "bar", style: { stroke } }));
    if (isNumber(value)) node.append(draw("circle", { cx: cut(value), cy: 9, r: 4, style: { fill: stroke } }));
    return node;
  }

  function improvementWords(value) {
    if (Array.isArray(value)) return share(value[0]) + (isNumber(value[1]) ? ` [${share(value[1])}, ${share(value[2])}]` : "");
    if (value && typeof value === "object") return improvementWords([value.estimate ?? value.value, value.low, value.high]);
    return share(value);
  }

  function comparisonTable(task) {
    const rows = data.comparison.rows.filter((row) => (row.task || "") === task);
    const ends = rows.flatMap((row) => [row.estimate, ...(row.scores || [])].flat(3));
    let [from, to] = extent(ends, 0.15);
    const bars = rows.flatMap((row) => [row.low, row.high]).filter(isNumber);
    const room = to - from;
    from = Math.max(Math.min(from, ...bars), from - room);
    to = Math.min(Math.max(to, ...bars), to + room);
    const over = rows.find((row) => row.over);
    const first = over ? visible(over.over).slice(0, 24) : "";
    const isOne = rows.length < 2;
    const heads = ["Arm", "Score", "95% interval", ...(isOne ? [] : [`Minus ${first}`, "P(better)"]), "Time", "Decisions", "Seeds done"];
    const even = evenPlaces(rows), evenMinus = evenPlaces(rows.map((row) => row.difference));
    const cells = (row) => {
      const one = !isNumber(row.low) && isNumber(row.estimate);
      const isBase = row.over === row.arm;
      const minus = row.difference || {};
      const sign = isNumber(minus.low) && minus.low > 0 ? "better" : isNumber(minus.high) && minus.high < 0 ? "worse" : "";
      return [
        el("th", { scope: "row" }, swatch(row.arm), el("span", { text: visible(row.arm) })),
        el("td", { class: "num strong" }, el("span", { text: isNumber(row.estimate) ? number(row.estimate, even) : "no evaluation yet" }),
          row.so_far ? el("span", { class: "tag running", text: "so far" }) : null),
        el("td", { class: "with-bar" }, intervalBar(row.estimate, row.low, row.high, from, to, row.arm),
          el("span", { class: "num", text: one ? "one seed" : isNumber(row.low) ? `[${number(row.low, even)}, ${number(row.high, even)}]` : "" })),
        ...(isOne ? [] : [el("td", { class: `num brief ${sign}`, text: isBase ? "baseline" : interval(minus.value, minus.low, minus.high, evenMinus) }),
          el("td", { class: "num brief", text: isBase ? "–" : improvementWords(row.improvement) })]),
        el("td", { class: "num", text: duration(row.seconds) }),
        el("td", { class: "num", text: many(row.decisions) }),
        el("td", { class: "num" }, el("span", { text: `${row.finished} of ${row.seeds}` }), row.running ? el("span", { class: "tag running", text: `${row.running} running` }) : null,
          row.failed.length ? el("span", { class: "tag failed", text: `${row.failed.length} failed` }) : null,
          row.missing.length ? el("span", { class: "tag failed", text: `${row.missing.length} missing` }) : null),
      ];
    };
    const body = rows.map((row) => {
      const all = cells(row);
      all.forEach((cell, i) => cell.setAttribute("data-label", heads[i]));
      return el("tr", {}, ...all);
    });
    const level = (data.comparison.levels || {})[task];
    const unit = [(data.comparison.units || {})[task], level && `after ${many(level)} decisions`].filter(Boolean).join(", ");
    return el("table", { class: "cards" }, task && el("caption", { text: visible(task) + (unit ? `: ${visible(unit)}` : "") }),
      el("thead", {}, el("tr", {}, ...heads.map((head, i) => el("th", { scope: "col", class: i > 0 && i !== 2 ? "num" : "", text: head })))), el("tbody", {}, ...body));
  }

  function incomplete() {
    const rows = data.comparison.rows;
    const failed = rows.flatMap((row) => row.failed.map((one) => [row, `seed ${one.seed}: ${asText(one.reason || "no reason is known")}`]));
    const missing = rows.filter((row) => row.missing.length).map((row) => [row, `${row.missing.length > 1 ? "seeds" : "seed"} ${row.missing.join(", ")}: there is no run`]);
    const lines = [...failed, ...missing].map(([row, words]) => el("li", {}, swatch(row.arm), el("b", { text: visible(row.arm) }), ...marked(` on ${row.task}, ${words}`)));
    const decided = (data.comparison.decisions || []).map((one) => el("li", { text: visible(`Sequential test (total error 5%): ${asText(one.first)} ${DECIDED[one.verdict] || "is not yet decided against"} ${asText(one.second)}.`) }));
    return [...(lines.length ? [el("h3", { text: "Failed and missing runs" }), el("ul", { class: "failures" }, ...lines),
      el("p", { class: "small", text: "They are not part of the scores. An arm without a finished run is shown with its scores so far, and says so." })] : []),
      ...(decided.length ? [el("ul", { class: "failures" }, ...decided)] : [])];
  }
  const DECIDED = { larger: "scores higher than", smaller: "scores lower than", equal: "cannot be distinguished from" };

  function runsTable() {
    const heads = ["Run", "Arm", "Task", "Seed", "State", "Step", "Score", "Alarms"];
    const rows = data.runs.slice(0, 500).map((run) => {
      const values = [run.label, run.arm, run.task, run.seed, run.state + (run.reason ? `: ${run.reason}` : ""),
        `${whole(run.step)}${run.steps !== null ? ` of ${whole(run.steps)}` : ""}`, number(run.score), run.alarms.join("; ") || "none"];
      return el("tr", {}, ...values.map((value, i) => el(i ? "td" : "th", { scope: i ? null : "row", "data-label": heads[i], class: [3, 5, 6].includes(i) ? "num" : "", text: visible(String(value)).slice(0, 600) })));
    });
    return el("details", { class: "fold" }, el("summary", { text: `All ${plural(data.runs.length, "run")}` }),
      el("div", { class: "wide" }, el("table", { class: "plain cards" }, el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col", text: head })))), el("tbody", {}, ...rows))));
  }

  function comparison() {
    const tables = live(() => {
      const tasks = [...new Set(data.comparison.rows.map((row) => row.task || ""))];
      if (!tasks.length) return empty("Nothing to compare yet.");
      return [...tasks.map((task) => el("div", { class: "wide" }, comparisonTable(task))), ...incomplete()];
    });
    const when = Object.keys(data.comparison.levels || {}).length ? "held-out score where all runs of a task had taken as many decisions" : "last held-out score";
    const lede = `Mean over seeds of the ${when}, with the 95% interval of the mean. Differences are paired by seed; green and red: their interval excludes 0. P(better): share of pairs of runs won against the baseline. Time and decisions are per run.`;
    const runs = data.runs.length ? [keepOpen(live(runsTable))] : [];
    section("results", "Results", lede, tables, ...runs);
  }

  // which parts carry the difference: one row for each factor, its share as a bar around 0
  function ablation() {
    const all = data.comparison.ablation;
    const heads = ["Part", "Share of the difference", "", "Added", "Removed", "Interaction"];
    const ends = [0, ...[...all.rows, { share: all.total }].flatMap((row) => [row.share.low, row.share.high, row.share.value])].filter(isNumber);
    const [from, to] = extent(ends, 0.05);
    const even = Object.fromEntries(["share", "added", "removed", "interaction"].map((name) => [name, evenPlaces(all.rows.map((row) => row[name]))]));
    const words = (row, name) => interval(row[name].value, row[name].low, row[name].high, even[name]);
    const bar = (one) => intervalBar(one.value, one.low, one.high, from, to, undefined, 0);
    const line = (name, told, values, share) => el("tr", {}, el("th", { scope: "row", "data-label": heads[0] }, el("span", { text: visible(name) }), told && el("div", { class: "small", text: visible(told) })),
      ...values.map((value, i) => el("td", { "data-label": heads[i + 1], class: "num" }, i === 1 ? bar(share) : el("span", { text: value }))));
    const rows = all.rows.map((row) => line(row.short, `${row.first} for ${row.second}`, [words(row, "share"), "", words(row, "added"), words(row, "removed"), words(row, "interaction")], row.share));
    rows.push(line("all", "", [words({ share: all.total }, "share"), "", "", "", ""], all.total));
    const lede = `Which parts carry the difference in score between ${visible(all.first)} and ${visible(all.second)}, over ${plural(all.seeds.length, "paired seed")}. Added: the part put into ${visible(all.second)}. Removed: taken out of ${visible(all.first)}. Interaction: removed minus added.` + (all.complete ? " Shares are means over all orders of adding the parts and add up to the whole." : " A share is the mean of added and removed.");
    section("ablation", "Ablation", lede, el("div", { class: "wide" }, el("table", { class: "cards" },
      el("thead", {}, el("tr", {}, ...heads.map((head, i) => el("th", { scope: "col", class: i > 0 ? "num" : "", text: head })))), el("tbody", {}, ...rows))));
  }

  // a folded part stays as it was when it is drawn again
  function keepOpen(host) {
    const again = refreshers.pop();
    refreshers.push(() => {
      const open = host.querySelector("details")?.open;
      again();
      if (open) host.querySelector("details").open = true;
    });
    return host;
  }

  // ------------------------------------------------------------------------------------------------ curves
  const AXES = { step: "training steps", decisions: "decisions (environment steps or tokens)", seconds: "time (seconds)" };
  const axisNames = () => Object.entries(AXES).map(([name, words]) => [name, words.replace(/ \(.*/, "")]);
  function withUnit(metric) {
    const units = data.comparison.units || {}, unit = metric === "evaluation" ? null : (data.metric_units || {})[metric];
    return metric === "evaluation" ? units[state.task] || "held-out score" : unit ? `${metric} (${unit})` : metric;
  }
  function alike(series) {
    const groups = new Map();
    for (const one of series) {
      const key = JSON.stringify([one.x, one.y]);
      groups.set(key, [...(groups.get(key) || []), visible(one.arm).slice(0, 40)]);
    }
    const same = [...groups.values()].filter((names) => names.length > 1).map((names) => names.join(", "));
    return same.length ? ` Identical at every point, one line on the other: ${same.join("; ")}.` : "";
  }

  function metricNames() {
    const names = new Set(data.runs.filter(ofTask).flatMap((run) => Object.keys(run.curves.values)));
    const first = ["evaluation", "reward", "return"].filter((name) => names.delete(name));
    return [...first, ...[...names].sort()];
  }
  function smoothed(values, span) {
    if (span < 2) return values;
    const half = span >> 1;
    return values.map((_, i) => {
      const some = values.slice(Math.max(0, i - half), i + half + 1);
      return some.reduce((a, b) => a + b, 0) / some.length;
    });
  }
  function seedLine(run, metric) {
    const xs = run.curves[state.axis], ys = run.curves.values[metric] || [];
    const kept = ys.map((_, i) => i).filter((i) => isNumber(ys[i]) && isNumber(xs[i]));
    const y = kept.map((i) => ys[i]);
    return { x: kept.map((i) => xs[i]), y: smoothed(y, Math.round(y.length * state.smooth)), seed: run.seed };
  }
  function between(line, x) {
    const { x: xs, y: ys } = line;
    if (!xs.length || x < xs[0] || x > xs[xs.length - 1]) return null;
    let low = 0, high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] <= x) low = middle; else high = middle;
    }
    if (xs[high] === xs[low]) return ys[low];
    return ys[low] + ((ys[high] - ys[low]) * (x - xs[low])) / (xs[high] - xs[low]);
  }
  function overSeeds(lines) {
    let grid = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
    const most = 300;
    if (grid.length > most) grid = Array.from({ length: most }, (_, i) => grid[Math.round((i * (grid.length - 1)) / (most - 1))]);
    const out = { x: grid, y: [], low: [], high: [], count: [] };
    for (const x of grid) {
      const values = lines.map((line) => between(line, x)).filter(isNumber);
      const n = values.length;
      const mean = values.reduce((a, b) => a + b, 0) / (n || 1);
      out.y.push(n ? mean : null);
      out.count.push(n);
      if (n > 1) {
        const error = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / (n - 1) / n);
        const half = (data.student[n - 2] || 1.96) * error;
        out.low.push(mean - half);
        out.high.push(mean + half);
      } else { out.low.push(null); out.high.push(null); }
    }
    return out;
  }
  function curveFigure(width) {
    const names = metricNames();
    if (!names.includes(state.metric)) state.metric = names.includes("evaluation") ? "evaluation" : names[0];
    if (!names.length) return { node: empty("Nothing has been measured yet."), caption: "No metric was written." };
    const series = [], ragged = [];
    for (const arm of shownArms()) {
      const lines = data.runs.filter((run) => run.arm === arm && ofTask(run)).map((run) => seedLine(run, state.metric)).filter((line) => line.x.length);
      if (!lines.length) continue;
      const mean = overSeeds(lines);
      const most = Math.max(...mean.count);
      const last = mean.count.lastIndexOf(most);
      if (last < mean.count.length - 1) ragged.push(`${visible(arm).slice(0, 40)} beyond ${state.axis} ${many(mean.x[last])}`);
      series.push({ ...mean, arm, name: `${arm} (${plural(lines.length, "seed")})`, colour: colour(arm), dash: dashes(arm), rows: state.seeds ? lines : [] });
    }
    if (!series.length) return { node: empty(`No shown arm has measured ${visible(state.metric)} on ${visible(state.task || "this task")}.`), caption: "" };
    const isCrowded = series.length > 5 && !state.seeds;
    if (isCrowded) for (const one of series) one.low = one.high = null;
    const some = !isCrowded && series.some((one) => one.count.some((n) => n > 1));
    const many_ = data.tasks.length > 1 ? ` on ${visible(state.task)}` : "";
    const words = `${capital(visible(withUnit(state.metric)))}${many_} over ${AXES[state.axis]}: mean over seeds${some ? ", band: 95% interval of the mean by Student's t, cut at the frame" : ""}` +
      `${isCrowded ? "; intervals are drawn for five arms or fewer" : ""}${state.seeds ? "; thin lines are single seeds" : ""}${state.smooth ? `; each seed is a moving mean over ${share(state.smooth)} of its points` : ""}.` +
      (ragged.length ? ` Fewer seeds: ${ragged.join("; ")}.` : "") + alike(series);
    const lined = series.map((one) => (state.seeds ? one : { ...one, rows: [] }));
    const every = data.runs.filter((run) => ofTask(run) && !state.hidden.has(run.arm)).flatMap((run) => seedLine(run, state.metric).y);
    const spec = { series: lined, xLabel: AXES[state.axis], xName: state.axis, yLabel: withUnit(state.metric), label: words, yRange: extent(every, 0.06) };
    return { node: lineChart(spec, width), caption: words };
  }
  function curves() {
    const controls = el("div", { class: "controls" },
      select("Metric", () => metricNames().map((name) => [name, name]), () => state.metric || metricNames()[0] || "", (value) => { state.metric = value; redraw(); }),
      select("Over", axisNames, () => state.axis, (value) => { state.axis = value; redraw(); }),
      select("Smoothing", () => [["0", "none"], ["0.03", "3% of points"], ["0.1", "10% of points"]], () => String(state.smooth), (value) => { state.smooth = Number(value); redraw(); }),
      toggle("Single seeds", () => state.seeds, (value) => { state.seeds = value; redraw(); }));
    section("curves", "Learning curves", "", controls, figure("learning-curves", "learning curves", curveFigure));
  }

  // ------------------------------------------------------------------------------------------------ profiles, matrix
  function profileFigure(width, task = state.task) {
    const found = data.comparison.profiles.find((one) => one.task === task);
    if (!found) return { node: empty("No run has an evaluation yet, so there is no profile."), caption: "" };
    const picked = Object.entries(found.arms).filter(([arm]) => !state.hidden.has(arm));
    const isCrowded = picked.length > 5;
    const series = picked.map(([arm, [y, low, high]]) =>
      ({ x: found.thresholds, y, low: isCrowded ? null : low, high: isCrowded ? null : high, arm, name: arm, colour: colour(arm), dash: dashes(arm) }));
    if (!series.length) return { node: empty("All arms are hidden."), caption: "" };
    const where = found.task ? (data.tasks.length > 1 ? ` on ${visible(found.task)}` : "") : " over all tasks, each normalised by its possible range";
    const words = `Performance profile${where}: share of runs that score at least τ${isCrowded ? "; intervals are drawn for five arms or fewer" : ", with 95% intervals"}. Higher is better everywhere.` + alike(series);
    const unit = found.task ? (data.comparison.units || {})[found.task] || "score" : "normalised score (0 to 1)";
    return { node: lineChart({ series, step: true, xLabel: `threshold τ: ${unit}`, xName: "τ", yLabel: "share of runs ≥ τ", yRange: [-0.02, 1.02], label: words }, width), caption: words };
  }

  // mean, median, interquartile mean and optimality gap with intervals: one panel each, one row for each arm
  const AGGREGATES = { mean: "mean", median: "median", iqm: "interquartile mean", gap: "optimality gap (lower is better)" };
  function aggregateFigure(width, task = state.task) {
    const rows = (data.comparison.aggregates || []).filter((one) => one.task === task && !state.hidden.has(one.arm));
    if (!rows.length) return { node: empty("No shown arm has an evaluation yet."), caption: "" };
    const names = Object.keys(AGGREGATES).filter((name) => rows.some((row) => row[name]));
    const left = Math.min(width * 0.3, Math.max(...rows.map((row) => visible(row.arm).length)) * 7 + 22);
    const across = width < 560 ? 1 : Math.min(names.length, width < 900 ? 2 : 4);
    const wide = (width - left - 16) / across, tall = 40 + rows.length * 24 + 26;
    const height = Math.ceil(names.length / across) * tall + 6;
    const unit = task ? (data.comparison.units || {})[task] || "score" : "scores normalised by the possible range of each task";
    const words = `Aggregate scores${task ? (data.tasks.length > 1 ? ` on ${visible(task)}` : "") : " over all tasks"} with 95% bootstrap intervals: ${visible(unit)}.` +
      (task ? " The median is over runs." : " The median is over the means of tasks.") + (names.includes("gap") ? " Optimality gap: mean distance below the highest possible score." : " There is no optimality gap: the highest possible score is not known.");
    const root = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", tabindex: 0, "aria-label": words });
    const fit = (name, room) => (name.length * 7 > room ? `${name.slice(0, Math.max(3, Math.floor(room / 7) - 1))}…` : name);
    names.forEach((name, nth) => {
      const x0 = left + (nth % across) * wide, y0 = Math.floor(nth / across) * tall, isFirst = nth % across === 0;
      const known = rows.filter((row) => row[name]);
      const spread = known.flatMap((row) => [row[name].low, row[name].value, row[name].high]).filter(isNumber);
      const [low, high] = extent(spread, 0.08);
      const X = (value) => x0 + 10 + ((value - low) / (high - low)) * (wide - 24);
      root.append(draw("text", { x: x0 + 10, y: y0 + 16, class: "legend", style: { "font-weight": 600 }, text: capital(AGGREGATES[name]) }));
      for (const tick of ticks(low, high, Math.max(3, Math.floor(wide / 80)))) {
        root.append(draw("line", { x1: X(tick.at), x2: X(tick.at), y1: y0 + 28, y2: y0 + tall - 26, class: "grid" }),
          draw("text", { x: X(tick.at), y: y0 + tall - 10, class: "tick", "text-anchor": "middle", text: tick.label }));
      }
      rows.forEach((row, i) => {
        const y = y0 + 40 + i * 24, one = row[name];
        if (isFirst) root.append(draw("text", { x: 0, y: y + 4, class: "legend", text: fit(visible(row.arm), left - 6) }));
        if (!one) return;
        const told = draw("g", {}, draw("title", { text: `${row.arm}: ${interval(one.value, one.low, one.high)}` }));
        if (isNumber(one.low)) told.append(draw("line", { x1: X(one.low), x2: X(one.high), y1: y, y2: y, "stroke-width": 9, "stroke-opacity": 0.35, style: { stroke: colour(row.arm) } }));
        told.append(draw("line", { x1: X(one.value), x2: X(one.value), y1: y - 7, y2: y + 7, "stroke-width": 2.5, style: { stroke: colour(row.arm) } }));
        root.append(told);
      });
    });
    return { node: root, caption: words };
  }
  const isPooled = () => data.comparison.profiles.some((one) => !one.task);

  function matrixFigure(width) {
    const all = data.comparison.improvement;
    const picked = all ? all.arms.map((arm, i) => [arm, i]).filter(([arm]) => !state.hidden.has(arm)) : [];
    const meets = picked.filter(([, i]) => picked.some(([, j]) => i !== j && isNumber(all.matrix[i][j])));
    if (meets.length < 2) return { node: empty("A probability of improvement needs two arms with evaluations on one task."), caption: "" };
    const names = meets.map(([arm]) => visible(arm));
    const wide = Math.min(150, Math.max(...names.map((name) => name.length)) * 7 + 26);
    const side = Math.max(34, Math.min(84, (width - wide - 8) / meets.length));
    const tall = Math.min(side, 46), top = 30;
    const size = { w: wide + side * meets.length + 8, h: top + tall * meets.length + 8 };
    const words = "Probability that a run of the row scores higher than a run of the column, ties half" + (data.tasks.length > 1 ? ", averaged over common tasks" : "") + ". Blue: the row is better; orange: the column." + (all.low?.some((line) => line.some(isNumber)) ? " Below each its 95% paired bootstrap interval." : "");
    const root = draw("svg", { viewBox: `0 0 ${size.w} ${size.h}`, width: Math.min(width, size.w), role: "img", "aria-label": words, tabindex: 0 });
    const fit = (name, room) => (name.length * 7 > room ? `${name.slice(0, Math.max(3, Math.floor(room / 7) - 1))}…` : name);
    meets.forEach(([arm, i], r) => {
      const y = top + r * tall;
      root.append(draw("rect", { x: 0, y: y + tall / 2 - 5, width: 10, height: 10, rx: 2, style: { fill: colour(arm) } }),
        draw("text", { x: 16, y: y + tall / 2 + 4, class: "legend", text: fit(names[r], wide - 20) }),
        draw("text", { x: wide + (r + 0.5) * side, y: top - 10, class: "legend", "text-anchor": "middle", text: fit(names[r], side - 2) }));
      meets.forEach(([, j], c) => {
        const x = wide + c * side, p = i === j ? null : all.matrix[i][j];
        const ends = all.low && all.high && isNumber(all.low[i]?.[j]) ? [all.low[i][j], all.high[i][j]] : null;
        const strength = isNumber(p) ? Math.abs(p - 0.5) * 1.3 + 0.04 : 0;
        const cell = draw("g", {}, draw("rect", { x: x + 1, y: y + 1, width: side - 2, height: tall - 2, rx: 3, class: isNumber(p) ? "" : "blank",
          style: isNumber(p) ? { fill: p >= 0.5 ? "var(--good)" : "var(--bad)", "fill-opacity": strength.toFixed(2) } : {} }),
          draw("text", { x: x + side / 2, y: y + tall / 2 + (ends ? -1 : 4), class: "cell", "text-anchor": "middle", text: i === j ? "·" : isNumber(p) ? number(p, 2) : "–" }));
        if (ends && side > 60) cell.append(draw("text", { x: x + side / 2, y: y + tall / 2 + 13, class: "cell-small", "text-anchor": "middle", text: `${number(ends[0], 2)}–${number(ends[1], 2)}` }));
        root.append(cell);
      });
    });
    return { node: root, caption: words };
  }

  // ------------------------------------------------------------------------------------------------ time
  const PHASES = ["sample", "reward", "credit", "update", "evaluate", "save", "other"];
  function timeFigure(width) {
    const rows = [];
    for (const arm of shownArms()) {
      const runs = data.runs.filter((run) => run.arm === arm && ofTask(run) && Object.keys(run.phases).length);
      if (!runs.length) continue;
      const spent = PHASES.map((phase) => runs.reduce((sum, run) => sum + (run.phases[phase] || 0), 0) / runs.length);
      rows.push({ arm, spent, total: spent.reduce((a, b) => a + b, 0) });
    }
    if (!rows.length) return { node: empty("No run has written how its time went."), caption: "" };
    const used = PHASES.filter((_, i) => rows.some((row) => row.spent[i] > 0));
    const words = `Where the time of a run went, mean over runs${data.tasks.length > 1 ? ` on ${visible(state.task)}` : ""}. “Other” is what no phase accounts for` + (used.includes("evaluate") ? "." : ", evaluations included.");
    const names = rows.map((row) => visible(row.arm));
    const left = Math.min(width * 0.34, Math.max(...names.map((name) => name.length)) * 7 + 12), right = width - 84;
    const head = draw("g", {});
    let x = 0, y = 10;
    for (const phase of used) {
      const room = 26 + phase.length * 7;
      if (x + room > width) { x = 0; y += 18; }
      head.append(draw("rect", { x, y: y - 6, width: 11, height: 11, rx: 2, style: { fill: `var(--phase-${PHASES.indexOf(phase)})` } }), draw("text", { x: x + 16, y: y + 4, class: "legend", text: phase }));
      x += room + 6;
    }
    const top = y + 18, tall = 34, height = top + rows.length * tall + 6;
    const root = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words, tabindex: 0 }, head);
    const longest = Math.max(...rows.map((row) => row.total));
    rows.forEach((row, r) => {
      const line = top + r * tall;
      const room = Math.floor((left - 8) / 7);
      root.append(draw("text", { x: 0, y: line + 18, class: "legend", text: names[r].length > room ? `${names[r].slice(0, room - 1)}…` : names[r] }));
      let at = left;
      const scale = (right - left) / (state.phases === "share" ? row.total || 1 : longest || 1);
      PHASES.forEach((phase, i) => {
        const size = row.spent[i] * scale;
        if (!size) return;
        const lines = [{ head: true, name: `${row.arm}: ${phase}` }, { name: duration(row.spent[i]), value: share(row.spent[i] / row.total) }];
        root.append(draw("rect", { x: at, y: line + 3, width: Math.max(0.5, size - 1), height: 22, rx: 2, style: { fill: `var(--phase-${i})` },
          on: { pointermove: (event) => showTip(lines, event.clientX, event.clientY), pointerleave: hideTip } }));
        if (size > 42) root.append(draw("text", { x: at + size / 2, y: line + 18, class: [1, 3, 5, 6].includes(i) ? "on-bar on-pale" : "on-bar", "text-anchor": "middle", text: share(row.spent[i] / row.total) }));
        at += size;
      });
      root.append(draw("text", { x: at + 8, y: line + 18, class: "tick", text: duration(row.total) }));
    });
    return { node: root, caption: words };
  }

  // ------------------------------------------------------------------------------------------------ settings
  function settingsTable() {
    const arms = data.arms.map((arm) => arm.name);
    const rows = data.differences;
    if (arms.length < 2) return empty("One arm: nothing differs.");
    if (!rows.length) return empty("The arms do not differ in any recorded setting.");
    const shown = state.allSettings ? rows : rows.slice(0, 12);
    const body = shown.map((row) => el("tr", {}, el("th", { scope: "row", class: "code", text: visible(row.setting) }),
      ...arms.map((arm) => el("td", { class: "code", "data-label": arm, text: arm in row.values ? visible(asText(row.values[arm])).slice(0, 300) : "—" }))));
    const more = rows.length > shown.length ? el("button", { type: "button", text: `Show all ${rows.length} differing settings`, on: { click: () => { state.allSettings = true; refresh(); } } }) : null;
    return [el("div", { class: "wide" }, el("table", { class: "plain" }, el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "Setting" }),
      ...arms.map((arm) => el("th", { scope: "col" }, swatch(arm), el("span", { text: visible(arm) }))))), el("tbody", {}, ...body))), more];
  }
  const opened = new Set();
  function fullConfigs() {
    return data.arms.map((arm) => el("details", { class: "fold", open: opened.has(arm.name), on: { toggle: (event) => (event.target.open ? opened.add(arm.name) : opened.delete(arm.name)) } }, el("summary", { text: `Full config of ${visible(arm.name)}` }),
      ...Object.entries(arm.configs).map(([task, config]) => el("div", {}, el("h4", { text: visible(task) }),
        el("dl", { class: "config" }, ...Object.entries(config).map(([name, value]) => el("div", {}, el("dt", { text: visible(name) }), el("dd", { text: visible(asText(value)).slice(0, 2000) }))))))));
  }

  // ------------------------------------------------------------------------------------------------ samples
  const ROW = 62;
  const list = { found: [], at: -1 };
  let parts = null;

  function haystack(sample) {
    if (sample.words === undefined) sample.words = [sample.prompt, sample.completion, sample.answer, sample.fault].map((one) => (one === null || one === undefined ? "" : asText(one))).join("\n").toLowerCase();
    return sample.words;
  }
  function matches(sample) {
    const f = state.filter, run = data.runs[sample.run];
    if (f.arm && run.arm !== f.arm) return false;
    if (f.seed !== "" && String(run.seed) !== f.seed) return false;
    if (f.step !== "" && String(sample.step) !== f.step) return false;
    if (f.low !== "" && !(sample.value !== null && sample.value >= Number(f.low))) return false;
    if (f.high !== "" && !(sample.value !== null && sample.value <= Number(f.high))) return false;
    if (f.cut && !sample.cut) return false;
    if (f.fault && !sample.fault) return false;
    return !f.text || haystack(sample).includes(f.text.toLowerCase());
  }
  function search() {
    list.found = data.samples.filter(matches);
    list.at = state.selected === null ? -1 : list.found.findIndex((sample) => sample.key === state.selected);
    const { shown, total } = data.sample_count;
    const limit = shown < total ? ` The page holds ${whole(shown)} of ${whole(total)} samples, evenly spaced over each run.` : "";
    parts.count.textContent = `Showing ${whole(list.found.length)} of ${plural(shown, "sample")}.${limit}`;
    parts.spacer.style.height = `${list.found.length * ROW}px`;
    parts.none.hidden = list.found.length > 0;
    rows();
    if (list.at < 0 && list.found.length && state.selected === null) choose(0, false);
    else detail();
  }
  function excerpt(sample) {
    const text = sample.completion ?? (sample.return !== undefined ? `return ${number(sample.return)} in ${plural(sample.length || 0, "step")}` : sample.prompt ?? "");
    return visible(asText(text).slice(0, 160)).replace(/\s+/g, " ");
  }
  function rows() {
    const { scroller, spacer } = parts;
    const first = Math.max(0, Math.floor(scroller.scrollTop / ROW) - 6);
    const last = Math.min(list.found.length, Math.ceil((scroller.scrollTop + (scroller.clientHeight || 600)) / ROW) + 6);
    const nodes = [];
    for (let i = first; i < last; i += 1) {
      const sample = list.found[i], run = data.runs[sample.run];
      nodes.push(el("div", {
        class: "row", role: "option", id: `sample-${i}`, "aria-selected": String(i === list.at), "aria-setsize": list.found.length, "aria-posinset": i + 1,
        style: { transform: `translateY(${i * ROW}px)` }, on: { click: () => choose(i, false) },
      },
        el("span", { class: "row-value num", text: sample.value === null ? "–" : number(sample.value) }),
        el("span", { class: "row-body" },
          el("span", { class: "row-where" }, swatch(run.arm), `${visible(run.arm).slice(0, 40)} · seed ${run.seed} · step ${asText(sample.step)}`, sample.cut ? el("span", { class: "tag", text: "cut" }) : null, sample.fault ? el("span", { class: "tag failed", text: "fault" }) : null),
          el("span", { class: "row-text", text: excerpt(sample) }))));
    }
    spacer.replaceChildren(...nodes);
    scroller.setAttribute("aria-activedescendant", list.at >= first && list.at < last ? `sample-${list.at}` : "");
  }
  function choose(index, follow = true) {
    if (!list.found.length) return;
    list.at = Math.max(0, Math.min(list.found.length - 1, index));
    state.selected = list.found[list.at].key;
    const { scroller } = parts;
    const top = list.at * ROW, height = scroller.clientHeight;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + ROW > scroller.scrollTop + height) scroller.scrollTop = top + ROW - height;
    rows();
    detail();
    if (follow) {
      const box = scroller.getBoundingClientRect();
      if (box.bottom < 120 || box.top > innerHeight - 120) parts.browser.scrollIntoView({ block: "start" });
    }
  }

  function textBlock(title, text, limit = 3000) {
    const body = el("pre", { class: "text", dir: "auto", tabindex: text.length > 1500 ? 0 : null });
    body.append(...marked(text.slice(0, limit)));
    const wrap = el("div", { class: "block" }, el("h4", { text: title }), body);
    if (text.length > limit) {
      const button = el("button", { type: "button", text: `Show all ${whole(text.length)} characters`, on: { click: () => {
        body.replaceChildren();
        for (let i = 0; i < text.length; i += 20000) body.append(el("span", { class: "chunk" }, ...marked(text.slice(i, i + 20000))));
        button.remove();
      } } });
      wrap.append(button);
    }
    return wrap;
  }

  function tokenText(token, isLast) {
    const text = asText(token);
    if (isLast && text === "\n") return "↵";
    return text.trim() === "" ? text.replace(/ /g, "␣").replace(/\t/g, "⇥").replace(/\n/g, "↵\n") : text;
  }
  function tokenBlock(sample) {
    const kinds = ["credit", "logp"].filter((name) => Array.isArray(sample[name]) && sample[name].some(isNumber));
    const kind = kinds.includes(state.colouring) || state.colouring === "none" ? state.colouring : kinds[0];
    const values = sample[kind] || [];
    const largest = Math.max(...values.slice(0, 1e5).filter(isNumber).map(Math.abs), 1e-12);
    const tokens = sample.tokens, limit = 1500;
    const body = el("pre", { class: "text tokens", dir: "auto" });
    const add = (from, to) => {
      for (let i = from; i < to; i += 1) {
        const value = values[i];
        const node = el("span", { class: "token" }, ...marked(tokenText(tokens[i], i === tokens.length - 1)));
        if (isNumber(value)) {
          node.style.backgroundColor = `color-mix(in srgb, var(${value >= 0 ? "--good" : "--bad"}) ${Math.round((Math.abs(value) / largest) * 55)}%, transparent)`;
          node.dataset.value = `token ${i}: ${kind} ${value > 0 ? "+" : ""}${number(value)}`;
        }
        body.append(node);
      }
    };
    add(0, Math.min(limit, tokens.length));
    body.addEventListener("pointermove", (event) => {
      const words = event.target.closest?.("[data-value]")?.dataset.value;
      if (words) showTip([{ name: words }], event.clientX, event.clientY); else hideTip();
    });
    body.addEventListener("pointerleave", hideTip);
    const more = tokens.length > limit ? el("button", { type: "button", text: `Show all ${whole(tokens.length)} tokens`, on: { click: () => { more.remove(); add(limit, tokens.length); } } }) : null;
    const mismatch = kind !== "none" && values.length !== tokens.length ? el("p", { class: "small", text: `${tokens.length} tokens but ${values.length} values of ${kind}: they may not line up.` }) : null;
    const buttons = [...kinds, "none"].map((name) => el("button", { type: "button", class: "chip", "aria-pressed": String(name === kind), text: { credit: "credit", logp: "log-probability", none: "plain" }[name], on: { click: () => { state.colouring = name; detail(); } } }));
    const scale = kind === "none" ? null : el("p", { class: "scale" }, el("span", { class: "num", text: `−${number(largest)}` }), el("span", { class: "ramp", "aria-hidden": "true" }), el("span", { class: "num", text: `+${number(largest)}` }), el("span", { text: `${kind} per token` }));
    return el("div", { class: "block" }, el("div", { class: "block-head" }, el("h4", { text: "Completion" }), el("div", { class: "chips", role: "group", "aria-label": "Colour tokens by" }, ...buttons)), body, scale, mismatch, more);
  }

  function traces(sample) {
    const out = [];
    const width = Math.max(260, Math.min(640, parts.detail.clientWidth - 40));
    const one = (title, lines, names) => {
      const series = lines.slice(0, 8).map((y, i) => ({ x: y.map((_, t) => t), y, name: names ? names[i] : title, colour: `var(--arm-${i % COLOURS})`, dash: "" }));
      const node = lineChart({ series, bare: lines.length < 2, height: lines.length < 2 ? 110 : 140, xName: "step", step: lines.every((line) => line.every((value) => Number.isInteger(value))), label: `${title} over the steps of this episode` }, width);
      out.push(el("div", { class: "block" }, el("h4", { text: title + (lines.length > 8 ? ` (first 8 of ${lines.length})` : "") }), node));
    };
    const columns = (rowsOf) => rowsOf[0].map((_, i) => rowsOf.map((row) => (Array.isArray(row) ? row[i] : row)));
    const actions = Array.isArray(sample.actions) ? sample.actions : sample.first_actions;
    const title = Array.isArray(sample.actions) ? "Actions" : "First actions";
    if (Array.isArray(actions) && actions.length) {
      const lines = Array.isArray(actions[0]) ? columns(actions) : [actions];
      if (lines.length) one(title, lines, lines.length > 1 ? lines.map((_, i) => `action ${i}`) : null);
    }
    if (Array.isArray(sample.rewards) && sample.rewards.length) one("Reward per step", [sample.rewards]);
    return out;
  }

  function siblings(sample) {
    if (sample.prompt === undefined) return null;
    const same = data.samples.filter((other) => other.run === sample.run && other.step === sample.step && asText(other.prompt) === asText(sample.prompt));
    if (same.length < 2) return null;
    return el("div", { class: "block" }, el("h4", { text: `${same.length} answers to this prompt at this step` }), el("div", { class: "chips" }, ...same.slice(0, 64).map((other) =>
      el("button", { type: "button", class: "chip num", "aria-pressed": String(other.key === sample.key), "aria-label": `answer with reward ${number(other.value)}`, text: number(other.value), title: visible(asText(other.completion).slice(0, 120)),
        on: { click: () => { const at = list.found.findIndex((one) => one.key === other.key); if (at >= 0) choose(at, false); } } }))));
  }

  const SHOWN = new Set(["run", "step", "key", "value", "words", "prompt", "completion", "answer", "reward", "return", "length", "cut", "fault", "tokens", "credit", "logp", "actions", "rewards", "first_actions", "not_finite"]);
  function detail() {
    const host = parts.detail;
    const sample = list.found[list.at];
    if (!sample) {
      host.replaceChildren(empty(list.found.length ? "The chosen sample is not among the filtered ones. Choose one from the list." : "No sample passes these filters."));
      host.dataset.key = "";
      return;
    }
    const run = data.runs[sample.run];
    const order = `${whole(list.at + 1)} of ${whole(list.found.length)}`;
    const sign = `${sample.key} ${state.colouring} ${run.arm} ${JSON.stringify({ ...sample, words: 0 }).length}`;
    if (parts.sign === sign && host.dataset.key === sample.key) {
      host.querySelector(".detail-head .num").textContent = order;
      return;
    }
    const chips = [["reward", sample.reward], ["return", sample.return], ["length", sample.length]].filter(([, value]) => value !== undefined && value !== null)
      .map(([name, value]) => el("span", { class: "stat" }, el("i", { text: name }), el("b", { text: isNumber(value) ? number(value) : visible(asText(value)).slice(0, 80) })));
    const flags = [sample.cut ? el("span", { class: "tag", text: "cut at the length limit" }) : null, sample.fault ? el("span", { class: "tag failed", text: `fault: ${visible(asText(sample.fault)).slice(0, 300)}` }) : null];
    const others = Object.entries(sample).filter(([name]) => !SHOWN.has(name)).slice(0, 40);
    const hasTokens = Array.isArray(sample.tokens) && sample.tokens.length;
    const inner = [
      el("div", { class: "detail-head" }, el("h3", {}, swatch(run.arm), `${visible(run.arm).slice(0, 80)} · seed ${run.seed} · step ${asText(sample.step)}`),
        el("span", { class: "small num", text: order })),
      el("div", { class: "stats" }, ...chips, ...flags),
      sample.prompt !== undefined && textBlock("Prompt", asText(sample.prompt)),
      hasTokens ? tokenBlock(sample) : sample.completion !== undefined && textBlock("Completion", asText(sample.completion)),
      sample.answer !== undefined && sample.answer !== null && textBlock("Reference answer", asText(sample.answer)),
      ...traces(sample),
      siblings(sample),
      others.length ? el("dl", { class: "config" }, ...others.map(([name, value]) => el("div", {}, el("dt", { text: visible(name).slice(0, 80) }), el("dd", { text: visible(asText(value).slice(0, 500)) })))) : null,
    ];
    host.replaceChildren(...inner.filter(Boolean));
    if (host.dataset.key !== sample.key) host.scrollTop = 0;
    host.dataset.key = sample.key;
    parts.sign = sign;
  }

  function samples() {
    const later = (run) => { let timer = 0; return () => { clearTimeout(timer); timer = setTimeout(run, 120); }; };
    const filtered = () => { parts.scroller.scrollTop = 0; if (!data.samples.some((sample) => sample.key === state.selected && matches(sample))) state.selected = null; search(); };
    const input = (name, label, type, hint) => {
      const slow = later(filtered);
      const node = el("input", { type, placeholder: hint, "data-filter": name, step: type === "number" ? "any" : null, on: { input: () => { state.filter[name] = node.value; slow(); } } });
      return el("label", { class: `field field-${name}` }, el("span", { text: label }), node);
    };
    const choice = (name, label, values) => {
      const field = select(label, () => [["", "all"], ...values().map((value) => [value, value])], () => state.filter[name], (value) => { state.filter[name] = value; filtered(); });
      field.querySelector("select").dataset.filter = name;
      return field;
    };
    const flag = (name, label) => { const field = toggle(label, () => state.filter[name], (value) => { state.filter[name] = value; filtered(); }); field.querySelector("input").dataset.filter = name; return field; };
    const distinct = (of) => [...new Set(data.samples.map(of))];
    const sorted = (values) => values.sort((a, b) => a - b).map(String);
    parts = {
      count: el("p", { class: "small num", role: "status", id: "sample-count" }),
      scroller: el("div", { class: "scroller", id: "sample-list", role: "listbox", tabindex: 0, "aria-label": "Samples" }),
      spacer: el("div", { class: "spacer", role: "presentation" }),
      none: el("p", { class: "empty", text: "No sample passes these filters.", hidden: true }),
      detail: el("article", { class: "detail", id: "sample-detail", "aria-live": "off", "aria-label": "Chosen sample" }),
    };
    parts.scroller.append(parts.spacer, parts.none);
    parts.browser = el("div", { class: "browser" }, parts.scroller, parts.detail);
    let waiting = false;
    parts.scroller.addEventListener("scroll", () => { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; rows(); }); } }, { passive: true });
    const note = live(() => (data.samples.length ? null : empty("No samples were written by these runs.")));
    const filters = el("div", { class: "controls filters", role: "search", "aria-label": "Filter samples" },
      input("text", "Search", "search", "text in prompt, completion, answer"),
      choice("arm", "Arm", () => distinct((sample) => data.runs[sample.run].arm)),
      choice("seed", "Seed", () => sorted(distinct((sample) => data.runs[sample.run].seed))),
      choice("step", "Step", () => sorted(distinct((sample) => sample.step).filter(isNumber))),
      input("low", "Reward from", "number", "lowest"), input("high", "to", "number", "highest"),
      flag("cut", "Only cut"), flag("fault", "Only faults"));
    section("samples", "Samples", "", note, filters, parts.count, parts.browser);
    const show = () => { for (const node of [filters, parts.count, parts.browser]) node.hidden = !data.samples.length; search(); };
    refreshers.push(show);
    new ResizeObserver(rows).observe(parts.scroller);
  }

  // ------------------------------------------------------------------------------------------------ methods
  function methods() {
    if (!data.methods_text) return;
    const text = live(() => el("p", { class: "methods", id: "methods-text", text: visible(data.methods_text) }));
    const copy = el("button", { type: "button", class: "quiet", text: "Copy", on: { click: async () => {
      try { await navigator.clipboard.writeText(data.methods_text); copy.textContent = "Copied"; } catch { getSelection().selectAllChildren(text); copy.textContent = "Selected"; }
      setTimeout(() => { copy.textContent = "Copy"; }, 2000);
    } } });
    section("methods", "Methods", "How these numbers were made, to paste into a paper.", text, copy);
  }

  // ------------------------------------------------------------------------------------------------ videos
  function videos() {
    if (!(data.videos || []).length) return;
    const shown = data.videos.map((one) => {
      const words = `${data.runs[one.run].label}, ${one.name.replace("-", " ")}`;
      const film = one.kind.startsWith("video/") ? el("video", { controls: "", loop: "", src: one.data, "aria-label": words })
        : el("img", { src: one.data, alt: words });
      return el("figure", { class: "film" }, film, el("figcaption", { text: words }));
    });
    section("videos", "Videos", "Held-out episodes of the trained policies.", el("div", { class: "films" }, ...shown));
  }

  // ------------------------------------------------------------------------------------------------ verdicts
  const MARKS = { holds: "✓", fails: "✗", inconclusive: "?" };
  const badge = (verdict) => el("span", { class: `badge ${Object.hasOwn(MARKS, verdict) ? verdict : "inconclusive"}` }, el("span", { "aria-hidden": "true", text: MARKS[verdict] || "?" }), el("span", { text: visible(asText(verdict ?? "not measured")) }));
  function claims() {
    const out = [];
    let count = 0, all = 0;
    for (const one of data.verdicts) {
      const every = Array.isArray(one.claims) ? one.claims : [];
      all += every.length;
      const found = every.filter((claim) => (!state.verdict || claim.verdict === state.verdict) && (!state.kind || claim.kind === state.kind) &&
        (!state.claim || `${asText(one.name)} ${asText(claim.name)} ${asText(claim.note ?? "")}`.toLowerCase().includes(state.claim.toLowerCase())));
      count += found.length;
      if (!found.length && (every.length || (state.verdict && one.verdict !== state.verdict))) continue;
      const heads = ["Claim", "Kind", "Estimate", "Interval", "Expected", "Verdict", "Seeds", "Minutes"];
      const body = found.map((claim) => {
        const mark = isNumber(claim.expect) ? claim.expect : Number((/[-+−]?\d+(\.\d+)?(e[-+]?\d+)?/i.exec(asText(claim.expect ?? "")) || [NaN])[0]);
        const [from, to] = extent([claim.estimate, claim.low, claim.high, mark, 0], 0.1);
        const cells = [
          el("th", { scope: "row" }, ...marked(asText(claim.name ?? "").slice(0, 400)), claim.note ? el("p", { class: "small" }, ...marked(asText(claim.note).slice(0, 1000))) : null),
          el("td", { text: visible(asText(claim.kind ?? "–")) }), el("td", { class: "num strong" }, el("span", {}, isNumber(claim.estimate) ? number(claim.estimate, decimalsFor(claim.low, claim.high)) : visible(asText(claim.estimate ?? "–")),
            claim.unit ? el("span", { class: "small", text: ` ${visible(asText(claim.unit))}` }) : null)),
          el("td", { class: "with-bar" }, isNumber(claim.estimate) ? intervalBar(claim.estimate, claim.low, claim.high, from, to, undefined, mark) : null, el("span", { class: "num", text: isNumber(claim.low) && isNumber(claim.high) ? interval(claim.estimate, claim.low, claim.high).replace(/^\S+ /, "") : "" })),
          el("td", { class: "num", text: visible(asText(claim.expect ?? "–")) }), el("td", {}, badge(claim.verdict), ...(claim.state && claim.state !== "fits" ? [el("span", { class: "small", text: ` ${visible(asText(claim.state))}` })] : [])),
          el("td", { class: "num", text: Array.isArray(claim.seeds) ? String(claim.seeds.length) : visible(asText(claim.seeds ?? "–")) }), el("td", { class: "num", text: isNumber(claim.minutes) ? number(claim.minutes, 1) : "–" })];
        cells.forEach((cell, i) => cell.setAttribute("data-label", heads[i]));
        return el("tr", {}, ...cells);
      });
      const versions = one.versions && typeof one.versions === "object" ? Object.entries(one.versions).map(([name, value]) => `${name} ${asText(value)}`).join(" · ") : asText(one.versions ?? "");
      const where = [typeof one.machine === "object" && one.machine ? Object.values(one.machine).map(asText).join(", ") : asText(one.machine ?? ""), versions].filter(Boolean).join(" — ");
      out.push(el("article", { class: "verdict" }, el("div", { class: "verdict-head" }, el("h3", {}, ...marked(asText(one.name ?? ""))), badge(one.verdict)),
        where && el("p", { class: "small" }, ...marked(where.slice(0, 500))),
        body.length ? el("div", { class: "wide" }, el("table", { class: "cards" }, el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col", text: head })))), el("tbody", {}, ...body))) : el("p", { class: "small", text: "No claims were recorded." })));
    }
    const tally = Object.keys(MARKS).map((name) => `${whole(data.verdicts.flatMap((one) => one.claims || []).filter((claim) => claim.verdict === name).length)} ${name === "holds" ? "hold" : name === "fails" ? "fail" : name}`);
    return [el("p", { class: "small num", role: "status", id: "claim-count", text: `Showing ${whole(count)} of ${plural(all, "claim")}: ${tally.join(", ")}.` }), ...(out.length ? out : [empty("No claim passes these filters.")])];
  }
  function verdicts() {
    if (!data.verdicts.length) return;
    const table = live(claims);
    const again = refreshers[refreshers.length - 1];
    const kinds = () => [...new Set(data.verdicts.flatMap((one) => (one.claims || []).map((claim) => asText(claim.kind ?? ""))))].filter(Boolean);
    const text = el("input", { type: "search", placeholder: "method, claim or note", on: { input: () => { state.claim = text.value; again(); } } });
    const meanings = el("dl", { class: "meanings" }, ...Object.entries(data.meanings || {}).map(([name, words]) =>
      el("div", {}, el("dt", {}, Object.hasOwn(MARKS, name) ? badge(name) : el("span", { class: "tag", text: name })), el("dd", { text: words }))));
    section("verdicts", "Verdicts", "What each method claims, what was measured, and what follows. A failed claim is shown like any other.", meanings,
      el("div", { class: "controls" }, select("Verdict", () => [["", "all"], ...Object.keys(MARKS).map((name) => [name, name])], () => state.verdict, (value) => { state.verdict = value; again(); }),
        select("Kind", () => [["", "all"], ...kinds().map((kind) => [kind, kind])], () => state.kind, (value) => { state.kind = value; again(); }),
        el("label", { class: "field" }, el("span", { text: "Search" }), text)), table);
  }

  // ------------------------------------------------------------------------------------------------ keys, colours, live
  const remembered = { get: () => { try { return localStorage.getItem("assay-theme"); } catch { return null; } }, set: (value) => { try { localStorage.setItem("assay-theme", value); } catch { return; } } };
  function theme(name) {
    document.documentElement.dataset.theme = name;
    const button = byId("theme");
    button.textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[name];
    button.setAttribute("aria-label", `Colours: ${{ auto: "automatic" }[name] || name}`);
    remembered.set(name);
  }
  const nextTheme = () => {
    const now = document.documentElement.dataset.theme;
    const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const order = isDark ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    theme(order[(order.indexOf(now) + 1) % 3]);
  };
  function keys() {
    const help = byId("help");
    byId("theme").addEventListener("click", nextTheme);
    byId("help-open").addEventListener("click", () => help.showModal());
    const box = () => document.querySelector("[data-filter=text]");
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
      const typing = event.target.closest?.("input, select, textarea");
      if (event.key === "Escape") { hideTip(); if (typing) { typing.blur(); parts && parts.scroller.focus({ preventScroll: true }); } return; }
      if (typing) return;
      const inList = parts && event.target === parts.scroller;
      const moves = { j: 1, k: -1, ...(inList ? { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8, Home: -1e9, End: 1e9 } : {}) };
      if (event.key in moves && data.samples.length) { event.preventDefault(); choose(list.at + moves[event.key]); }
      else if (event.key === "/" && data.samples.length) { event.preventDefault(); box().focus(); box().select(); }
      else if (event.key === "?") { event.preventDefault(); help.showModal(); }
      else if (event.key === "t") nextTheme();
    });
  }

  function replace(fresh) {
    const { scrollX, scrollY } = window;
    const top = parts ? parts.scroller.scrollTop : 0;
    const focus = document.activeElement;
    data = fresh;
    prepare();
    heading();
    refresh();
    if (parts) { parts.scroller.scrollTop = top; rows(); }
    if (focus && focus.isConnected && focus !== document.activeElement) focus.focus({ preventScroll: true });
    window.scrollTo(scrollX, scrollY);
  }
  function watch() {
    const sign = byId("live");
    sign.hidden = false;
    let tag = data.tag || "", wait = 2000;
    const say = (text, isBad) => { sign.textContent = text; sign.classList.toggle("lost", isBad); };
    say("live", false);
    const poll = async () => {
      const begun = performance.now();
      try {
        if (!document.hidden) {
          const answer = await fetch("data.json", { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
          if (answer.status === 200) {
            const fresh = await answer.json();
            tag = answer.headers.get("ETag") || "";
            const isNew = !data.runs.length && fresh.runs.length;
            if (isNew) { location.reload(); return; }
            replace(fresh);
          } else if (answer.status !== 304) throw new Error(String(answer.status));
          say(`live · ${data.written.slice(11, 19)}`, false);
        }
        wait = Math.min(30000, Math.max(data.poll || 2000, 5 * (performance.now() - begun)));
      } catch {
        say("server not reachable", true);
        wait = Math.min(30000, wait * 2);
      }
      setTimeout(poll, wait);
    };
    setTimeout(poll, data.poll || 2000);
  }

  // ------------------------------------------------------------------------------------------------ begin
  theme(remembered.get() || "auto");
  prepare();
  heading();
  if (data.runs.length || data.comparison.rows.length) {
    scope();
    if (data.comparison.ablation) ablation();
    comparison();
    if (data.runs.length) curves();
    section("profiles", "Performance profiles", data.tasks.length > 1 && !isPooled() ? "One profile for each task: scores of different scales are not pooled." : "",
      figure("performance-profile", "performance profile", (width) => profileFigure(width)),
      ...(isPooled() ? [figure("performance-profile-all", "performance profile over all tasks", (width) => profileFigure(width, ""))] : []));
    section("aggregates", "Aggregate scores", "", figure("aggregates", "aggregate scores", (width) => aggregateFigure(width)),
      ...(isPooled() ? [figure("aggregates-all", "aggregate scores over all tasks", (width) => aggregateFigure(width, ""))] : []));
    section("improvement", "Probability of improvement", "", figure("improvement", "probability of improvement", matrixFigure));
    if (data.runs.length) {
      section("time", "Where the time went", "", el("div", { class: "controls" }, select("Bars show", () => [["share", "shares"], ["seconds", "seconds"]], () => state.phases, (value) => { state.phases = value; redraw(); })), figure("time", "where the time went", timeFigure));
      section("settings", "Settings", "Only what differs between arms; seeds, tasks and machines aside.", live(settingsTable), live(fullConfigs));
      samples();
    }
  }
  methods();
  videos();
  verdicts();
  if (!content.querySelector("section")) content.append(empty(data.notes.length ? "There is nothing to show yet; the notes above say why." : "There is nothing to show."));
  keys();
  new ResizeObserver(() => document.documentElement.style.setProperty("--bar", `${document.querySelector(".toolbar").offsetHeight}px`)).observe(document.querySelector(".toolbar"));
  refresh();
  if (data.live) watch();
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
  document.documentElement.dataset.script = String(Math.round(performance.now() - started));
})();
