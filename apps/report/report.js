// The page of `quintet report`: what the program found in the runs, drawn.

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const several = data.runs.length > 1;
const DASHES = [undefined, "6 3", "2 3", "9 3 2 3", "1 2"];

// A metric belongs to the first group whose pattern it matches. Rates and rows of evaluations, which change little, are among the others.
const GROUPS = [
  ["Loss", /^(loss|loss_per_nonpadding_target_token|cross_ent_loss|z_loss)$/],
  ["Metrics", /^(accuracy|eval\/.*|[^/]*(accuracy|exact_match|bleu|rouge|f1)[^/]*)$/],
  ["Learning rate", /^learning_rate/],
  ["Gradients and weights", /norm|^weight_/],
  ["Throughput", /^timing\/\w+_per_second$/],
  ["Memory", /^memory\//],
  ["Experts", /^experts\//],
  ["Data", /^(mixture|effective_batch_size|non_padding_fraction)\//],
  ["Other", /./],
];
// All below these are lines of one chart.
const JOINED = /^(weight_\w+|experts\/load\/[^/]+|non_padding_fraction|effective_batch_size|mixture)\/(.+)$/;

function card(title, ...content) {
  const made = element("section", {}, element("h2", {}, title), ...content);
  main.append(made);
  return made;
}

function table(head, rows, kind = "") {
  return element("div", {class: "scroll"}, element("table", {class: kind}, element("thead", {}, element("tr", {}, ...head.map(text => element("th", {}, text)))),
    element("tbody", {}, ...rows.map(row => element("tr", {}, ...row.map((cell, i) => element(i ? "td" : "th", {}, cell ?? "")))))));
}

const swatch = (colour, dash) => element("svg", {width: 22, height: 10, "aria-hidden": "true"},
  element("path", {d: "M0 5H22", class: `line c${colour}`, "stroke-dasharray": dash}));

const groupOf = series => GROUPS.find(([name, pattern]) => pattern.test(series.name) && (series.place === "train" || !["Throughput", "Data"].includes(name)))[0];
const at = ([step, value]) => `${number(+value.toPrecision(6))} at ${number(step)}`;

function summary() {
  const names = [...new Set(data.runs.flatMap(run => run.facts.map(fact => fact[0])))];
  const text = value => typeof value === "number" ? number(value) : value;
  card(several ? "Runs" : "Run", table(["", ...data.runs.map(run => run.name)],
    names.map(name => [name, ...data.runs.map(run => text(run.facts.find(fact => fact[0] === name)?.[1]))]), "text facts"));
  const rows = data.runs.flatMap(run => run.series.filter(series => ["Loss", "Metrics"].includes(groupOf(series))).map(series =>
    [series.name, series.place, ...(several ? [run.name] : []), number(+series.last[1].toPrecision(6)), at(series.least), at(series.most)]));
  rows.sort((a, b) => a[0].localeCompare(b[0]) || a[1].localeCompare(b[1]));
  if (rows.length)
    main.append(element("section", {}, element("details", {open: rows.length <= 12}, element("summary", {}, element("h2", {}, "Last, lowest and highest values")),
      table(["metric", "of", ...(several ? ["run"] : []), "last", "lowest", "highest"], rows))));
  if (data.warnings.length)
    card("Left out", element("div", {}, ...data.warnings.map(text => element("div", {class: "bad soft"}, text))));
}

/// Charts by group: [{title, lines}].
function chartsByGroup() {
  const groups = new Map(GROUPS.map(([name]) => [name, new Map()]));
  const places = [...new Set(["train", ...data.runs.flatMap(run => run.series.map(series => series.place))])];
  const training_first = run => [...run.series].sort((a, b) => (b.place === "train") - (a.place === "train"));
  data.runs.forEach((run, r) => training_first(run).forEach(series => {
    const charts = groups.get(groupOf(series));
    const joined = JOINED.exec(series.name), title = joined ? joined[1] : series.name;
    if (!charts.has(title)) charts.set(title, []);
    const lines = charts.get(title);
    const place = places.indexOf(series.place), tail = joined ? joined[2] : "";
    const label = [several ? run.name : "", series.place, tail].filter(text => text).join(" · ") || series.name;
    const colour = joined ? lines.filter(line => line.run === run.name).length : several ? r : place;
    const of_chart = [...new Set([...lines.map(line => line.place), series.place])];
    const dash = joined && several ? r : joined || !several ? Math.floor(colour / 8) : of_chart.indexOf(series.place);
    lines.push({...series, label, run: run.name, colour: colour % 8, dash: DASHES[dash % DASHES.length]});
  }));
  return [...groups].filter(([, charts]) => charts.size > 0);
}

const view = {log: false, smoothing: 0, range: null, hidden: new Set()};
const drawn = [];  // {figure, chart, stale}

function redraw(figures = drawn) {
  for (const one of figures) one.stale = true;
  for (const one of figures) if (one.near) paint(one);
}
function paint(one) {
  if (!one.stale) return;
  one.chart.draw(view);
  one.stale = false;
}
/// Only charts near the screen are drawn: a run may have hundreds.
const watcher = new IntersectionObserver(entries => {
  for (const entry of entries) {
    const one = drawn.find(item => item.figure === entry.target);
    one.near = entry.isIntersecting;
    if (one.near) paint(one);
  }
}, {rootMargin: "400px"});
addEventListener("beforeprint", () => drawn.forEach(one => { if (one.figure.offsetParent) paint(one); }));
addEventListener("resize", () => redraw());

function curves() {
  const groups = chartsByGroup();
  if (groups.length === 0) { card("Curves", element("p", {class: "soft"}, "No metrics yet.")); return; }
  controls();
  for (const [name, charts] of groups) {
    const grid = element("div", {class: "charts"});
    const first = title => title === "loss_per_nonpadding_target_token" || title === "timing/target_tokens_per_second";
    for (const [title, lines] of [...charts].sort(([a], [b]) => first(b) - first(a) || a.localeCompare(b))) {
      const figure = element("figure");
      const marks = data.runs.flatMap(run => run.events.filter(event => event.mark).map(event =>
        ({step: event.step, text: (several ? run.name + ": " : "") + event.what})));
      const chart = lineChart(figure, {title, lines, marks, onzoom: range => {
        view.range = range;
        document.getElementById("range").textContent = range ? `steps ${range.map(step => number(Math.round(step))).join(" to ")}` : "";
        redraw();
      }});
      drawn.push({figure, chart, stale: true, near: false});
      watcher.observe(figure);
      grid.append(figure);
    }
    if (name !== "Other") { card(name, grid); continue; }
    main.append(element("section", {}, element("details", {}, element("summary", {}, element("h2", {}, `Other metrics (${charts.size})`)), grid)));
  }
}

function controls() {
  const log = element("input", {type: "checkbox", id: "log"});
  const smoothing = element("input", {type: "range", min: 0, max: 0.99, step: 0.01, value: 0, id: "smoothing"});
  const value = element("span", {}, "0");
  log.onchange = () => { view.log = log.checked; redraw(); };
  smoothing.oninput = () => { view.smoothing = +smoothing.value; value.textContent = smoothing.value; redraw(); };
  const reset = element("button", {class: "second", type: "button"}, "Whole run");
  reset.onclick = () => { view.range = null; document.getElementById("range").textContent = ""; redraw(); };
  const bar = element("section", {id: "controls", class: "screen"}, element("label", {}, log, " logarithmic"),
                      element("label", {}, "smoothing ", smoothing, " ", value), reset, element("span", {id: "range", class: "soft"}));
  if (several)
    data.runs.forEach((run, r) => {
      const box = element("input", {type: "checkbox", checked: true});
      box.onchange = () => { box.checked ? view.hidden.delete(run.name) : view.hidden.add(run.name); redraw(); };
      bar.append(element("label", {class: "run"}, box, " ", swatch(r % 8), " " + run.name));
    });
  bar.append(element("span", {class: "soft"}, "Drag across a chart to zoom; double-click, or 0, for the whole run."));
  main.append(bar);
  const most = Math.max(...data.runs.flatMap(run => run.series.map(series => series.n / series.steps.length)));
  if (most > 1)
    main.append(element("p", {class: "soft"}, `Where there are more values than points, a point stands for up to ${Math.ceil(most)} values: ` +
                        "the line is their mean, the band reaches from the smallest to the largest."));
}

function events() {
  const rows = data.runs.flatMap(run => run.events.map(event => [...(several ? [run.name] : []), event.time ?? "",
    event.step === null ? "" : number(event.step), event.what]));
  if (rows.length) card("Starts and faults", table([...(several ? ["run"] : []), "time (UTC)", "step", "what"], rows, "text"));
}

function mixture() {
  for (const run of data.runs.filter(item => item.mixture?.length)) {
    const total = run.mixture.reduce((sum, part) => sum + part[1], 0);
    card("Mixture as seen" + (several ? `: ${run.name}` : ""),
      element("div", {class: "share"}, ...run.mixture.map(([name, count], i) =>
        element("span", {class: `c${i % 8}`, style: `flex-grow: ${count}`, title: name}))),
      table(["task", "examples", "share"], run.mixture.map(([name, count]) =>
        [name, number(Math.round(count)), `${number(+(100 * count / total).toPrecision(4))} %`])));
  }
}

/// One list of steps for all runs; each run shows its newest sample at or before the chosen step.
function samples() {
  const tasks = [...new Set(data.runs.flatMap(run => run.samples.map(item => item.task)))];
  for (const task of tasks) {
    const of = data.runs.map(run => run.samples.filter(item => item.task === task));
    const steps = [...new Set(of.flat().map(item => item.step))].sort((a, b) => a - b);
    const slider = element("input", {type: "range", min: 0, max: steps.length - 1, step: 1, value: steps.length - 1, "aria-label": "step"});
    const label = element("b"), place = element("div");
    const show = () => {
      const step = steps[+slider.value];
      label.textContent = `step ${number(step)}`;
      const shown = of.map(items => items.filter(item => item.step <= step).at(-1));
      const head = ["input", "target"], with_samples = shown.map((item, r) => [item, data.runs[r].name]).filter(([item]) => item);
      for (const [item, name] of with_samples) head.push(several ? `${name}${item.step === step ? "" : `, step ${number(item.step)}`}` : "prediction");
      const first = with_samples[0]?.[0].rows ?? [];
      place.replaceChildren(table(head, first.map((row, i) => [row[0], row[1], ...with_samples.map(([item]) => {
        const other = item.rows.find(candidate => candidate[0] === row[0]) ?? (item.rows[i]?.[0] === row[0] ? item.rows[i] : null);
        return other ? element("span", {class: other[1] === other[2] ? "added" : ""}, other[2]) : "";
      })]), "text"));
    };
    slider.oninput = show;
    show();
    card(`Samples of ${task}`, element("div", {class: "pick"}, element("label", {class: "screen"}, "step ", slider), label), place);
  }
}

function configuration() {
  if (several) {
    const note = data.config.length ? "" : "The configurations are the same.";
    card("Differences of the configurations", note ? element("p", {class: "soft"}, note)
      : table(["", ...data.runs.map(run => run.name)], data.config.map(([name, ...values]) => [name, ...values]), "text"));
  }
  for (const run of data.runs.filter(item => item.config))
    main.append(element("section", {class: "screen"}, element("details", {}, element("summary", {}, element("h2", {}, "Configuration" + (several ? ` of ${run.name}` : ""))),
      element("pre", {}, run.config))));
}

document.title = data.runs.map(run => run.name).join(", ");
document.getElementById("title").textContent = document.title;
document.getElementById("made").textContent = data.made;
summary();
curves();
events();
mixture();
samples();
configuration();
