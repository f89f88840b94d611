"use strict";
// Draws the plots of each run from the data in the page. Nothing is fetched.
(() => {
  const CHARTS = [
    { title: "Throughput", unit: "items/s", curves: [["exported_per_s", "exported"], ["received_per_s", "received", "dashed"]] },
    { title: "Latency, end to end", unit: "p99, ms", logarithmic: true, curves: [["latency_p99_ms", "p99"]] },
    { title: "On their way", unit: "items sent and not yet at every backend", curves: [["backlog_items", "items"]] },
    { title: "Queue", unit: "in the subject's own unit", curves: [["queue", "queue"]] },
    { title: "Memory", unit: "MB", scale: 1 / 1048576, curves: [["memory_bytes", "memory"]] },
    { title: "CPU", unit: "cores", curves: [["cpu_cores", "CPU"]] },
  ];
  const COLOURS = 6;
  const MARGIN = { left: 52, right: 12, top: 20, bottom: 26 };
  const HEIGHT = 230;
  const LETTER = 6.2;
  const SVG = "http://www.w3.org/2000/svg";

  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const shape = (parent, name, attributes = {}, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  const known = (value) => typeof value === "number" && Number.isFinite(value);
  const figure = (value) => {
    if (!known(value)) return "–";
    const size = Math.abs(value);
    if (size >= 1e6) return `${+(value / 1e6).toFixed(2)}M`;
    if (size >= 1e4) return `${+(value / 1e3).toFixed(1)}k`;
    return String(+value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 3));
  };
  const colour = (index) => `--c: var(--s${index % COLOURS})`;

  // 1, 2 or 5 times a power of ten.
  const step = (range, count) => {
    const rough = range / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    return power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  };

  const linear = (values) => {
    const most = Math.max(...values, 0) || 1;
    const unit = step(most, 4);
    const top = Math.ceil(most / unit - 1e-9) * unit;
    const ticks = [];
    for (let number = 0; number * unit <= top * 1.0001; number++) ticks.push(number * unit);
    return { ticks, share: (value) => Math.max(value, 0) / top };
  };

  const logarithmic = (values) => {
    const positive = values.filter((value) => value > 0);
    const from = Math.floor(Math.log10(Math.min(...positive)));
    const to = Math.max(Math.ceil(Math.log10(Math.max(...positive)) - 1e-9), from + 1);
    const ticks = [];
    for (let power = from; power <= to; power++) ticks.push(10 ** power);
    return { ticks, share: (value) => (value > 0 ? (Math.log10(value) - from) / (to - from) : 0) };
  };

  // Everything that one chart shows: a list of { subject, turn, name, style, points: [[t, value or null]] }.
  const curvesOf = (chart, run) =>
    run.subjects.flatMap((subject, index) =>
      subject.turns.flatMap((samples, turn) =>
        chart.curves.map(([key, name, style]) => ({
          index, turn, name, style, subject: subject.name,
          points: samples.map((sample) => [sample.t_s, known(sample[key]) ? sample[key] * (chart.scale || 1) : null]),
        }))))
      .filter((curve) => curve.points.some(([, value]) => value !== null));

  // A break where a value is not known.
  const path = (points, x, y) => {
    let text = "";
    let pen = "M";
    for (const [time, value] of points) {
      if (value === null) { pen = "M"; continue; }
      text += `${pen}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
    }
    return text;
  };

  const describe = (chart, curves, run) => {
    const parts = curves.filter((curve) => curve.turn === 0).map((curve) => {
      const values = curve.points.map(([, value]) => value).filter(known);
      const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
      return `${curve.subject} ${curve.name}: ${figure(Math.min(...values))} to ${figure(Math.max(...values))}, mean ${figure(mean)}`;
    });
    const faults = run.windows.map((one) => `${one.label} from ${figure(one.from_s)} to ${one.to_s === null ? "the end" : `${figure(one.to_s)} s`}`);
    return parts.concat(faults.length ? [`faults: ${faults.join(", ")}`] : []).join("; ");
  };

  const frame = (svg, size, end, scale, run, x, y) => {
    for (const tick of scale.ticks) {
      shape(svg, "line", { class: "grid", x1: MARGIN.left, x2: size.width - MARGIN.right, y1: y(tick), y2: y(tick) });
      shape(svg, "text", { x: MARGIN.left - 8, y: y(tick) + 4, "text-anchor": "end" }, figure(tick));
    }
    for (const window of run.windows) {
      const from = x(Math.max(window.from_s, 0));
      const to = x(Math.min(window.to_s === null ? end : window.to_s, end));
      if (to <= from) continue;
      const bottom = size.height - MARGIN.bottom;
      const area = shape(svg, "rect", { class: "fault", x: from, y: MARGIN.top, width: to - from, height: bottom - MARGIN.top });
      shape(area, "title", {}, window.label);
      for (const edge of [from, to]) shape(svg, "line", { class: "fault-edge", x1: edge, x2: edge, y1: MARGIN.top, y2: bottom });
      // The legend has them all: here only what has room.
      if (window.label.length * LETTER < to - from) {
        shape(svg, "text", { class: "fault-label", x: (from + to) / 2, y: MARGIN.top - 7, "text-anchor": "middle" }, window.label);
      }
    }
    const bottom = size.height - MARGIN.bottom;
    shape(svg, "line", { class: "axis", x1: MARGIN.left, x2: size.width - MARGIN.right, y1: bottom, y2: bottom });
    const unit = step(end, size.width > 420 ? 8 : 5);
    for (let time = 0; time <= end * 1.0001; time += unit) {
      const isLast = time + unit > end * 1.0001;
      const anchor = isLast && x(time) > size.width - 30 ? "end" : "middle";
      const place = anchor === "end" ? size.width - 2 : x(time);
      shape(svg, "text", { x: place, y: size.height - 8, "text-anchor": anchor }, `${figure(time)}${isLast ? " s" : ""}`);
    }
  };

  // A picture of one chart, as wide as there is room for it.
  const picture = (chart, curves, run, name, width) => {
    const size = { width, height: HEIGHT };
    const svg = document.createElementNS(SVG, "svg");
    const about = { viewBox: `0 0 ${size.width} ${size.height}`, role: "img", tabindex: "0", "aria-labelledby": `${name}-title ${name}-about` };
    for (const [key, value] of Object.entries(about)) svg.setAttribute(key, value);
    shape(svg, "title", { id: `${name}-title` }, `${chart.title} over time, ${chart.unit}`);
    shape(svg, "desc", { id: `${name}-about` }, describe(chart, curves, run));
    const values = curves.flatMap((curve) => curve.points.map(([, value]) => value)).filter(known);
    const positive = values.filter((value) => value > 0);
    const isWideRange = chart.logarithmic && positive.length && Math.max(...positive) > 30 * Math.min(...positive);
    const scale = isWideRange ? logarithmic(values) : linear(values);
    const end = Math.max(run.end_s, 1);
    const inner = size.width - MARGIN.left - MARGIN.right;
    const x = (time) => MARGIN.left + (time / end) * inner;
    const y = (value) => size.height - MARGIN.bottom - scale.share(value) * (size.height - MARGIN.top - MARGIN.bottom);
    frame(svg, size, end, scale, run, x, y);
    for (const curve of [...curves].reverse()) {
      const classes = ["curve", curve.style, curve.turn ? "later" : ""].filter(Boolean).join(" ");
      shape(svg, "path", { class: classes, style: colour(curve.index), "data-subject": curve.index, d: path(curve.points, x, y) });
    }
    const hand = shape(svg, "line", { class: "hand", y1: MARGIN.top, y2: size.height - MARGIN.bottom });
    const timeAt = (clientX) => {
      const box = svg.getBoundingClientRect();
      return ((((clientX - box.left) / box.width) * size.width - MARGIN.left) / inner) * end;
    };
    return { svg, hand, x, timeAt };
  };

  const draw = (chart, run, number, pointAt) => {
    const curves = curvesOf(chart, run);
    const caption = element("figcaption", {}, chart.title, element("small", {}, chart.unit));
    const holder = element("figure", {}, caption);
    if (!curves.length) {
      holder.append(element("p", {}, "Not known: no subject told it."));
      return { holder, fit() {}, show() {} };
    }
    const tip = element("div", { class: "tip", "aria-live": "off" });
    holder.append(tip);
    let drawn = null;

    const listen = (svg) => {
      svg.addEventListener("pointermove", (event) => pointAt(drawn.timeAt(event.clientX)));
      svg.addEventListener("pointerleave", () => pointAt(null));
      svg.addEventListener("blur", () => pointAt(null));
      svg.addEventListener("keydown", (event) => {
        const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!move) return;
        event.preventDefault();
        pointAt((run.pointed === null ? 0 : run.pointed) + move * (Math.max(run.end_s, 1) / 60));
        tip.setAttribute("aria-live", "polite");
      });
    };

    const fit = () => {
      const style = getComputedStyle(holder);
      const room = holder.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
      const width = Math.round(room > 0 ? Math.max(room, 240) : 590);
      if (drawn && drawn.width === width) return;
      const before = drawn;
      drawn = { ...picture(chart, curves, run, `plot-${run.id}-${number}`, width), width };
      listen(drawn.svg);
      if (before) before.svg.replaceWith(drawn.svg);
      else holder.insertBefore(drawn.svg, tip);
    };

    const show = (time, hidden) => {
      for (const line of drawn.svg.querySelectorAll(".curve")) line.style.display = hidden.has(+line.dataset.subject) ? "none" : "";
      drawn.hand.style.visibility = time === null ? "hidden" : "visible";
      tip.replaceChildren();
      if (time === null) return;
      drawn.hand.setAttribute("x1", drawn.x(time));
      drawn.hand.setAttribute("x2", drawn.x(time));
      tip.append(element("span", {}, `${figure(time)} s`));
      for (const curve of curves.filter((one) => one.turn === 0 && !hidden.has(one.index))) {
        const nearest = curve.points.reduce((best, point) => (Math.abs(point[0] - time) < Math.abs(best[0] - time) ? point : best));
        const label = chart.curves.length > 1 ? `${curve.subject} ${curve.name}` : curve.subject;
        tip.append(element("span", {}, `${label} `, element("b", { style: colour(curve.index) }, figure(nearest[1]))));
      }
    };
    return { holder, fit, show };
  };

  const legend = (run, hidden, redraw) => {
    const box = element("div", { class: "legend", role: "group", "aria-label": "Subjects" });
    run.subjects.forEach((subject, index) => {
      const button = element("button", { type: "button", "aria-pressed": "true" }, element("i", { style: colour(index) }), subject.name);
      button.addEventListener("click", () => {
        if (!hidden.delete(index)) hidden.add(index);
        button.setAttribute("aria-pressed", String(!hidden.has(index)));
        redraw();
      });
      box.append(button);
    });
    box.append(element("span", {}, element("i", { class: "full" }), "exported"));
    box.append(element("span", {}, element("i", { class: "dashed" }), "received"));
    for (const window of run.windows) {
      const time = `${figure(window.from_s)}–${window.to_s === null ? "" : figure(window.to_s)} s`;
      box.append(element("span", {}, element("i", { class: "shade" }), `${window.label}, ${time}`));
    }
    if (run.subjects.some((subject) => subject.turns.length > 1)) box.append(element("span", {}, "faint: later turns"));
    return box;
  };

  const runs = JSON.parse(document.getElementById("data").textContent);
  for (const run of runs) {
    const place = document.getElementById(`run-${run.id}`);
    const hidden = new Set();
    run.pointed = null;
    const redraw = () => charts.forEach((chart) => chart.show(run.pointed, hidden));
    const pointAt = (time) => {
      run.pointed = time === null ? null : Math.min(Math.max(time, 0), Math.max(run.end_s, 1));
      redraw();
    };
    const charts = CHARTS.map((chart, number) => draw(chart, run, number, pointAt));
    const grid = element("div", { class: "plots" }, ...charts.map((chart) => chart.holder));
    place.replaceChildren(legend(run, hidden, redraw), grid);
    const fit = () => {
      charts.forEach((chart) => chart.fit());
      redraw();
    };
    fit();
    new ResizeObserver(fit).observe(grid);
  }
  document.body.dataset.drawn = String(document.querySelectorAll("svg").length);
})();
