"use strict";
const tfPlacer = (() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  // Later runs have only what is not as in the first.
  const written = read("operation-data");
  const first = written.find((each) => each);
  const runs = written.map((each) => each && { ...first, ...each, steps: each.steps.map((step, i) => step ?? first.steps[i]) });
  let data = runs.find((each) => each);
  const legends = read("legend-data");
  const MOST_ROWS = 200;

  const time = (us) => us >= 1e6 ? (us / 1e6).toPrecision(4) + " s"
    : us >= 1e3 ? (us / 1e3).toPrecision(4) + " ms" : us.toFixed(1) + " µs";
  const size = (bytes) => {
    const power = bytes < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(bytes) / 10));
    return power ? (bytes / 1024 ** power).toPrecision(4) + " " + ["KiB", "MiB", "GiB", "TiB"][power - 1] : `${Math.round(bytes)} B`;
  };
  const escape = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

  // A graph without a backward pass has no directions.
  const direction = (data, number) => data.backward.length ? [data.backward[number] ? "backward" : "forward"] : [];

  // Makes the tooltip of an operation; charts know only its run and number.
  function operation(run, number) {
    const data = runs[run];
    const lines = [`<b>${escape(data.names[number])}</b>`,
      [data.kindNames[data.kinds[number]], ...direction(data, number), escape(data.layerNames[data.layers[number]])].join(", ")];
    for (const step of data.steps)
      lines.push(`${escape(step.label)}: ${time(step.secs[number])} on ${escape(data.deviceNames[step.devices[number]])} from ${time(step.start[number])}`
        + (step.waited[number] > 0 ? `, waited ${time(step.waited[number])}` : ""));
    return lines.join("<br>");
  }

  function operationRows() {
    return data.names.map((name, i) => ({
      name, full: data.fullNames[i] ?? name, kind: data.kindNames[data.kinds[i]], direction: direction(data, i).join(),
      layer: data.layerNames[data.layers[i]], group: data.groups[i], operations: 1,
      devices: data.steps.map((s) => data.deviceNames[s.devices[i]]), secs: data.steps.map((s) => s.secs[i]),
      waited: data.steps.map((s) => s.waited[i]),
    }));
  }

  function groupRows() {
    const rows = new Map();
    data.names.forEach((name, i) => {
      const group = data.groups[i];
      let row = rows.get(group);
      if (!row) {
        row = { name, full: data.fullNames[i] ?? name, kinds: new Map(), direction: new Set(), layer: data.layerNames[data.layers[i]], group, operations: 0,
          devices: data.steps.map((s) => data.deviceNames[s.devices[i]]), secs: data.steps.map(() => 0), waited: data.steps.map(() => 0) };
        rows.set(group, row);
      }
      row.operations += 1;
      direction(data, i).forEach((each) => row.direction.add(each));
      data.steps.forEach((s, k) => { row.secs[k] += s.secs[i]; row.waited[k] += s.waited[i]; });
      const kind = data.kindNames[data.kinds[i]];
      const last = data.steps.length - 1;
      row.kinds.set(kind, (row.kinds.get(kind) || 0) + data.steps[last].secs[i]);
    });
    return [...rows.values()].map((row) => ({ ...row,
      kind: [...row.kinds].sort((a, b) => b[1] - a[1])[0][0], direction: [...row.direction].sort().reverse().join(", ") }));
  }

  function columns() {
    const named = data.steps.map((step, k) => [
      [`on, ${step.label}`, (r) => r.devices[k], false],
      [`takes, ${step.label}`, (r) => r.secs[k], true],
      [`waits, ${step.label}`, (r) => r.waited[k], true],
    ]);
    const directed = data.backward.length ? [["direction", (r) => r.direction, false]] : [];
    return [["name", (r) => r.name, false], ["kind", (r) => r.kind, false], ...directed,
      ["layer", (r) => r.layer, false], ["group", (r) => r.group, true], ["operations", (r) => r.operations, true], ...named.flat()];
  }

  function table() {
    let all, cols, sort;
    function load(run) {
      data = run;
      all = { groups: groupRows(), operations: operationRows() };
      cols = columns();
      sort = { column: cols.map((c) => c[0]).lastIndexOf(`takes, ${data.steps[data.steps.length - 1].label}`), down: true };
    }
    const head = document.querySelector("#rows thead"), body = document.querySelector("#rows tbody");
    const filter = document.getElementById("filter"), count = document.getElementById("count");
    const isTime = (name) => /^(takes|waits), /.test(name);

    function show() {
      const which = document.querySelector('input[name="rows"]:checked').value;
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      const matches = all[which].filter((row) => {
        const text = [row.full, row.kind, row.direction, row.layer, ...row.devices].join(" ").toLowerCase();
        return words.every((word) => text.includes(word));
      });
      const get = cols[sort.column][1];
      matches.sort((a, b) => { const x = get(a), y = get(b); const order = x < y ? -1 : x > y ? 1 : 0; return sort.down ? -order : order; });
      head.innerHTML = "<tr>" + cols.map(([name, , right], k) =>
        `<th class="${right ? "n" : ""}"><button type="button" data-column="${k}">${escape(name)}${k === sort.column ? (sort.down ? " ▾" : " ▴") : ""}</button></th>`).join("") + "</tr>";
      body.innerHTML = matches.slice(0, MOST_ROWS).map((row) => "<tr>" + cols.map(([name, value, right]) => {
        const v = value(row);
        const title = name === "name" && row.full !== row.name ? ` title="${escape(row.full)}"` : "";
        return `<td class="${right ? "n" : ""}" data-label="${escape(name)}"${title}>${isTime(name) ? time(v) : escape(typeof v === "number" ? v.toLocaleString("en") : v)}</td>`;
      }).join("") + "</tr>").join("");
      count.textContent = `${matches.length.toLocaleString("en")} of ${all[which].length.toLocaleString("en")} ${which}`
        + (matches.length > MOST_ROWS ? `, the first ${MOST_ROWS} are shown` : "");
      fit();
    }
    head.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      const column = Number(button.dataset.column);
      sort = { column, down: column === sort.column ? !sort.down : cols[column][2] };
      show();
    });
    filter.addEventListener("input", show);
    document.getElementById("rows-run")?.addEventListener("change", (event) => { load(runs[event.target.value]); show(); });
    document.querySelectorAll('input[name="rows"]').forEach((input) => input.addEventListener("change", show));
    load(data);
    show();
  }

  // Stacks the rows of tables that would be cut, and marks pictures that are.
  function fit() {
    for (const wide of document.querySelectorAll(".wide, .picture")) {
      wide.classList.remove("stacked", "scrolls");
      if (wide.scrollWidth > wide.clientWidth) wide.classList.add(wide.classList.contains("wide") ? "stacked" : "scrolls");
    }
  }

  const charts = () => {
    const chart = read("chart-data");
    return Bokeh.embed.embed_items(chart.docs, chart.items);
  };

  // Charts are transparent: only their texts and lines need the colors of the page.
  function theme() {
    const style = getComputedStyle(document.documentElement);
    const soft = style.getPropertyValue("--soft").trim();
    for (const root of Bokeh.documents.flatMap((d) => d.roots()))
      for (const model of root.references()) {
        if (/Axis$/.test(model.type)) Object.assign(model, { axis_label_text_color: soft, major_label_text_color: soft, axis_line_color: soft,
          major_tick_line_color: soft, minor_tick_line_color: null });
        if (model.type === "Grid") model.grid_line_color = soft;
        if (model.type === "GlyphRenderer" && model.name === "ink") model.glyph.line_color = style.getPropertyValue("--ink").trim();
        if (model.type === "Legend") Object.assign(model, { label_text_color: soft });
      }
  }

  function legend(by) {
    let last = "";
    for (const place of document.querySelectorAll(".legend")) {
      place.innerHTML = legends[place.dataset.run][by].map(([name, color]) => `<span style="--c:${color}">${escape(name)}</span>`).join("");
      place.hidden = place.innerHTML === last;
      last = place.innerHTML;
    }
  }

  function colors() {
    const select = document.getElementById("color-by");
    if (!select) return;
    const color = () => { legend(select.value); paint(select.value); };
    select.addEventListener("change", color);
    color();
  }

  // Colors the operations in the timelines; charts know only their numbers.
  function paint(by) {
    for (const root of Bokeh.documents.flatMap((d) => d.roots()))
      for (const model of root.references()) {
        if (model.type !== "GlyphRenderer" || model.name !== "operations") continue;
        const [run, step] = model.glyph.tags;
        const data = runs[run];
        const values = { kind: data.kinds, layer: data.layers, device: data.steps[step].devices, direction: data.backward }[by];
        const source = model.data_source;
        source.data = { ...source.data, color: Array.from(source.data.number, (number) => data.colors[by][values[number] ?? 0]) };
        model.glyph.fill_color = { field: "color" };
      }
  }

  // Charts are as wide as the window, so print images of them.
  function addPrintImages() {
    document.querySelectorAll(".printed").forEach((image) => image.remove());
    for (const chart of document.querySelectorAll(".chart")) {
      const view = Object.values(Bokeh.index.roots ?? Bokeh.index).find((each) => chart.contains(each.el));
      if (!view) continue;
      const image = document.createElement("img");
      image.className = "printed";
      image.alt = "";
      image.src = view.export("png").canvas.toDataURL();
      chart.before(image);
    }
  }

  async function start() {
    await charts();
    addEventListener("beforeprint", addPrintImages);
    theme();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
    if (data) { colors(); table(); }
    fit();
    addEventListener("resize", fit);
    // A table inside of a fold has no width before.
    document.querySelectorAll("details").forEach((each) => each.addEventListener("toggle", fit));
    document.documentElement.dataset.ready = "yes";
  }
  return { size, time, operation, start };
})();
window.tfPlacer = tfPlacer;
tfPlacer.start();
