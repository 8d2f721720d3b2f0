/* Layer grids: cosine and Pearson side by side, or z. Rows are layers of A, columns layers of B. */
K.part(() => {
  const root = K.byId('heat');
  if (!root) return;
  const MISSING = -(2 ** 31);
  const UNITS = { cosine: 1e6, cosine_null: 1e6, pearson: 1e6, z: 1e3 };
  function unpacked(grid, shown) {
    if (grid.status !== 'ok') return { role: shown.role, off: shown.off };
    const cells = new Int32Array(K.bytes(grid.cells));
    const width = grid.layers_b.length;
    const out = { role: shown.role, null: shown.null, n: grid.n, rows: grid.rows, step: shown.step, a: grid.layers_a, b: grid.layers_b };
    Object.entries(UNITS).forEach(([name, unit], k) => {
      out[name] = Float64Array.from(out.a.flatMap((_, i) => out.b.map((__, j) => {
        const value = cells[4 * (i * width + j) + k];
        return value === MISSING ? NaN : value / unit;
      })));
    });
    return out;
  }
  const grids = K.data.report.grids.map((grid, at) => unpacked(grid, K.data.grids[at]));
  const { map } = K.data;
  const roleBox = K.byId('heat-role');
  const panels = K.byId('heat-panels');
  const readout = K.byId('heat-value');
  const overlay = K.byId('heat-map');
  const state = { grid: null, mode: 'values', views: [], cursor: null };
  grids.forEach((grid, position) => roleBox.append(K.make('option', { value: position }, grid.role)));
  const usable = grids.findIndex((grid) => grid.off === undefined && grid.cosine.some((value) => value > 0.5));
  roleBox.value = String(Math.max(0, usable >= 0 ? usable : grids.findIndex((grid) => grid.off === undefined)));

  const CIVIDIS = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];
  const DIVERGING = [[5, 48, 97], [67, 147, 195], [242, 242, 242], [230, 130, 60], [127, 59, 8]];
  function mixed(stops, share) {
    const at = Math.max(0, Math.min(1, share)) * (stops.length - 1);
    const k = Math.min(stops.length - 2, Math.floor(at));
    const rgb = stops[k].map((from, c) => Math.round(from + (stops[k + 1][c] - from) * (at - k)));
    return `rgb(${rgb.join(',')})`;
  }
  function lowest(values) { return values.reduce((least, value) => (value < least ? value : least), Infinity); }
  function farthest(values) { return values.reduce((most, value) => (Math.abs(value) > most ? Math.abs(value) : most), 0); }
  function nice(value) {
    const power = 10 ** Math.floor(Math.log10(value));
    return [1, 1.5, 2, 3, 5, 7.5, 10].map((k) => k * power).find((k) => k >= value - 1e-9);
  }
  function scales(grid) {
    const low = lowest(grid.cosine) < 0 ? -1 : 0;
    const name = (key) => K.say(`js.heat.${key}`);
    if (state.mode === 'values') {
      return [
        { key: 'cosine', name: name('cosine'), stops: CIVIDIS, low, high: 1, share: (v) => (v - low) / (1 - low), ticks: low ? [-1, 0, 1] : [0, 0.5, 1],
          note: K.say('js.heat.scale', { name: name('cosine'), low, high: 1 }) },
        { key: 'pearson', name: name('pearson'), stops: DIVERGING, low: -1, high: 1, share: (v) => (v + 1) / 2, ticks: [-1, 0, 1],
          note: K.say('js.heat.scale', { name: name('pearson'), low: -1, high: 1 }) },
      ];
    }
    const most = nice(Math.max(5, farthest(grid.z)));
    const bend = (v) => Math.asinh(v / 2);
    return [{ key: 'z', name: name('z'), stops: DIVERGING, low: -most, high: most, share: (v) => (bend(v) / bend(most) + 1) / 2,
      unshare: (s) => 2 * Math.sinh((2 * s - 1) * bend(most)), ticks: [-most, 0, most], note: K.say('js.heat.scale.z', { low: -most, high: most }) }];
  }
  function panel(grid, scale) {
    const figure = K.make('figure', { class: 'panel' });
    const canvas = K.make('canvas', { tabindex: 0, role: 'application', id: scale.key === 'z' ? 'heat-scores' : `heat-${scale.key}`, 'data-kind': scale.key, 'aria-describedby': 'heat-help',
      'aria-label': K.say('js.heat.label', { name: scale.name, role: grid.role, rows: grid.a.length, columns: grid.b.length }) });
    const legend = K.make('div', { class: 'scale' });
    const strip = K.make('canvas', { width: 180, height: 12, 'aria-hidden': 'true' });
    const brush = strip.getContext('2d');
    for (let x = 0; x < 180; x += 1) { brush.fillStyle = mixed(scale.stops, x / 179); brush.fillRect(x, 0, 1, 12); }
    legend.append(K.make('span', {}, String(scale.low)), strip, K.make('span', {}, String(scale.high)));
    const caption = K.make('figcaption', {}, scale.name);
    figure.append(caption, canvas, legend, K.make('p', { class: 'note' }, scale.note));
    const view = { scale, canvas, figure };
    canvas.addEventListener('pointermove', (event) => hover(view, event));
    canvas.addEventListener('pointerdown', (event) => hover(view, event));
    canvas.addEventListener('pointerleave', () => { K.hideTip(); });
    canvas.addEventListener('keydown', (event) => keyed(event));
    return view;
  }
  function build() {
    const grid = grids[Number(roleBox.value)];
    state.grid = grid;
    state.cursor = null;
    readout.textContent = '';
    const off = K.byId('heat-off');
    const about = K.byId('heat-about');
    off.hidden = grid.off === undefined;
    about.textContent = '';
    state.views = [];
    if (grid.off !== undefined) {
      off.textContent = K.say('js.heat.off', { reason: K.said(grid.off) });
      panels.replaceChildren();
      return;
    }
    const values = { n: grid.n, null: K.said(grid.null) };
    about.textContent = grid.rows ? K.say('js.heat.about.rows', { ...values, first: grid.rows[0], last: grid.rows[1] - 1 }) : K.say('js.heat.about', values);
    if (grid.step > 1) about.textContent += ` ${K.say('js.heat.thinned', { n: grid.step })}`;
    state.views = scales(grid).map((scale) => panel(grid, scale));
    panels.replaceChildren(...state.views.map((view) => view.figure));
    paint();
  }
  function layout(view) {
    const { a, b } = state.grid;
    const width = Math.max(200, view.figure.clientWidth);
    const left = 40;
    const top = 8;
    const cell = Math.min(44, (width - left - 4) / b.length, Math.max(4, 520 / a.length));
    return { width, left, top, cell, height: top + cell * a.length + 40 };
  }
  function paint() { state.views.forEach(paintOne); }
  function paintOne(view) {
    const { grid } = state;
    const place = layout(view);
    view.place = place;
    const { canvas, scale } = view;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(place.width * ratio);
    canvas.height = Math.round(place.height * ratio);
    canvas.style.height = `${place.height}px`;
    const pen = canvas.getContext('2d');
    pen.scale(ratio, ratio);
    pen.clearRect(0, 0, place.width, place.height);
    const values = grid[scale.key];
    const { left, top, cell } = place;
    const ink = K.colour('--ink');
    const gap = cell > 16 ? 1 : 0;
    let missing = false;
    for (let i = 0; i < grid.a.length; i += 1) {
      for (let j = 0; j < grid.b.length; j += 1) {
        const value = values[i * grid.b.length + j];
        const x = left + j * cell;
        const y = top + i * cell;
        if (Number.isNaN(value)) {
          missing = true;
          pen.strokeStyle = K.colour('--dim');
          pen.beginPath();
          pen.moveTo(x + 1, y + 1);
          pen.lineTo(x + cell - 1, y + cell - 1);
          pen.moveTo(x + cell - 1, y + 1);
          pen.lineTo(x + 1, y + cell - 1);
          pen.stroke();
        } else {
          pen.fillStyle = mixed(scale.stops, scale.share(value));
          pen.fillRect(x, y, cell - gap + (gap ? 0 : 0.6), cell - gap + (gap ? 0 : 0.6));
        }
      }
    }
    view.figure.querySelector('.note').textContent = missing ? `${scale.note}; ${K.say('js.heat.missing')}` : scale.note;
    pen.fillStyle = K.colour('--dim');
    pen.font = '12px system-ui, sans-serif';
    const every = Math.max(1, Math.ceil(24 / cell));
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    grid.a.forEach((layer, i) => { if (i % every === 0) pen.fillText(String(layer), left - 4, top + (i + 0.5) * cell); });
    pen.textAlign = 'center';
    pen.textBaseline = 'top';
    grid.b.forEach((layer, j) => { if (j % every === 0) pen.fillText(String(layer), left + (j + 0.5) * cell, top + grid.a.length * cell + 4); });
    pen.textAlign = 'left';
    pen.fillText(K.say('js.heat.axis.b'), left, top + grid.a.length * cell + 20);
    pen.save();
    pen.translate(10, top + grid.a.length * cell / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = 'center';
    pen.textBaseline = 'middle';
    pen.fillText(K.say('js.heat.axis.a'), 0, 0);
    pen.restore();
    if (overlay.checked) {
      for (const [from, to] of map) outline(pen, place, grid.a.indexOf(from), grid.b.indexOf(to), '#ffffff', '#000000', 1.5);
    }
    if (state.cursor) outline(pen, place, state.cursor[0], state.cursor[1], K.colour('--paper'), ink, 2.5);
  }
  function outline(pen, { left, top, cell }, i, j, outer, inner, width) {
    if (i < 0 || j < 0) return;
    pen.lineWidth = width + 1.5;
    pen.strokeStyle = outer;
    pen.strokeRect(left + j * cell, top + i * cell, cell, cell);
    pen.lineWidth = width;
    pen.strokeStyle = inner;
    pen.strokeRect(left + j * cell, top + i * cell, cell, cell);
  }
  function describe(i, j) {
    const { grid } = state;
    const at = i * grid.b.length + j;
    const text = K.say('js.cell', { a: grid.a[i], b: grid.b[j], cosine: K.number(grid.cosine[at]), null: K.number(grid.cosine_null[at]),
      pearson: K.number(grid.pearson[at]), z: K.zed(grid.z[at]) });
    const mapped = map.some(([from, to]) => from === grid.a[i] && to === grid.b[j]);
    return mapped ? `${text} (${K.say('js.cell.map')})` : text;
  }
  function move(i, j) {
    const { grid } = state;
    state.cursor = [Math.max(0, Math.min(grid.a.length - 1, i)), Math.max(0, Math.min(grid.b.length - 1, j))];
    readout.textContent = describe(...state.cursor);
    paint();
  }
  function hover(view, event) {
    const frame = view.canvas.getBoundingClientRect();
    const { left, top, cell } = view.place;
    const j = Math.floor((event.clientX - frame.left - left) / cell);
    const i = Math.floor((event.clientY - frame.top - top) / cell);
    const { a, b } = state.grid;
    if (i < 0 || j < 0 || i >= a.length || j >= b.length) { K.hideTip(); return; }
    if (!state.cursor || state.cursor[0] !== i || state.cursor[1] !== j) move(i, j);
    K.showTip(describe(i, j), event.clientX, event.clientY);
  }
  const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [-1e6, -1e6], End: [1e6, 1e6], PageUp: [-8, 0], PageDown: [8, 0] };
  function keyed(event) {
    const by = STEPS[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (state.cursor) move(state.cursor[0] + by[0], state.cursor[1] + by[1]);
    else move(0, 0);
  }
  roleBox.addEventListener('change', build);
  root.querySelectorAll('input[name="heat-mode"]').forEach((input) => input.addEventListener('change', () => {
    state.mode = root.querySelector('input[name="heat-mode"]:checked').value;
    build();
  }));
  overlay.addEventListener('change', paint);
  K.onChange(build);
  let width = 0;
  new ResizeObserver(() => { if (panels.clientWidth !== width) { width = panels.clientWidth; paint(); } }).observe(panels);
  build();
});
