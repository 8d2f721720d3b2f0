/* One metric by layer, a line for each role. */
(() => {
  const m = K.measured;
  const box = K.byId('chart');
  if (!m || !box) return;
  const readout = K.byId('chart-value');
  const legend = K.byId('chart-legend');
  const metricBox = K.byId('chart-metric');
  const quantityBox = K.byId('chart-quantity');
  const COLOURS = 7;
  const SHAPES = 6; // without a common factor, so that 42 roles differ in colour or shape; every second six are hollow
  const state = { points: [], cursor: null, drag: null };
  m.metrics.forEach((name, position) => { if (name) metricBox.append(K.make('option', { value: position }, name)); });
  const usual = m.metrics.indexOf('pearson');
  if (usual >= 0) metricBox.value = String(usual);

  function reading(i, quantity) {
    if (quantity === 'value') return m.value[i];
    if (quantity === 'p') return -Math.min(m.p[i], 0);
    return m.flags[i] & m.LESS ? -m.z[i] : m.z[i];
  }
  function shape(role, x, y, size) {
    const kind = role % SHAPES;
    const hollow = Math.floor(role / SHAPES) % 2 === 1;
    const look = hollow ? { fill: 'var(--paper)', stroke: colour(role), 'stroke-width': 2 } : { fill: colour(role), stroke: 'var(--paper)', 'stroke-width': 1 };
    if (kind === 0) return K.draw('circle', { cx: x, cy: y, r: size, ...look });
    if (kind === 1) return K.draw('rect', { x: x - size, y: y - size, width: 2 * size, height: 2 * size, ...look });
    const s = size * 1.3;
    const t = size * 0.45;
    const plus = `M${x - t} ${y - s}H${x + t}V${y - t}H${x + s}V${y + t}H${x + t}V${y + s}H${x - t}V${y + t}H${x - s}V${y - t}H${x - t}Z`;
    const up = `M${x} ${y - s}L${x + s} ${y + s}H${x - s}Z`;
    const down = `M${x} ${y + s}L${x + s} ${y - s}H${x - s}Z`;
    const diamond = `M${x} ${y - s}L${x + s} ${y}L${x} ${y + s}L${x - s} ${y}Z`;
    return K.draw('path', { d: [up, diamond, down, plus][kind - 2], ...look });
  }
  const colour = (role) => `var(--s${role % COLOURS})`;
  function steps(low, high, wanted) {
    const raw = (high - low) / wanted;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= raw) || 10 * power;
    const out = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) out.push(k * step);
    return out;
  }
  function gather(metric, quantity) {
    const points = [];
    for (let i = 0; i < m.count; i += 1) {
      if (m.metric[i] !== metric || !m.passes(i)) continue;
      const y = reading(i, quantity);
      if (Number.isFinite(y)) points.push({ i, y, role: m.role(i), layer: m.layer(i) });
    }
    return points.sort((a, b) => a.role - b.role || (a.layer ?? -1) - (b.layer ?? -1) || a.i - b.i);
  }
  function range(points, quantity) {
    let low = Infinity;
    let high = -Infinity;
    for (const { y } of points) { low = Math.min(low, y); high = Math.max(high, y); }
    if (quantity === 'z') { low = Math.min(low, -4); high = Math.max(high, 4); }
    if (quantity === 'p') { low = 0; high = Math.max(high, 4); }
    if (high - low < 1e-9) { const pad = Math.max(1e-3, Math.abs(high) * 0.05); low -= pad; high += pad; }
    const pad = 0.05 * (high - low);
    return [quantity === 'p' ? 0 : low - pad, high + pad];
  }
  function render() {
    const metric = Number(metricBox.value);
    const quantity = quantityBox.value;
    const width = Math.max(260, box.clientWidth - 2);
    const height = width < 520 ? 300 : 380;
    const edge = { left: 58, right: 12, top: 26, bottom: 42 };
    const points = gather(metric, quantity);
    const name = m.metrics[metric] || K.DASH;
    const svg = K.draw('svg', { viewBox: `0 0 ${width} ${height}`, width, height, 'aria-hidden': 'true', focusable: 'false' });
    state.cursor = null;
    state.points = points;
    const axis = K.say(`js.axis.${quantity}`, { metric: name });
    box.setAttribute('aria-label', K.say('js.chart.label', { quantity: axis, metric: name, first: m.filter.first, last: m.filter.last, points: points.length }));
    box.removeAttribute('aria-labelledby');
    if (!points.length) {
      svg.append(K.draw('text', { x: width / 2, y: height / 2, 'text-anchor': 'middle' }, K.say('js.chart.empty')));
      box.replaceChildren(svg);
      legend.replaceChildren();
      return;
    }
    const outside = points.some((point) => point.layer === null);
    const low = m.filter.first - 0.5;
    const start = edge.left + (outside ? 34 : 0); // tensors outside layers stand apart, at the left
    const span = width - start - edge.right;
    const high = m.filter.last + 0.5;
    const [bottom, top] = range(points, quantity);
    const x = (layer) => (layer === null ? edge.left + 14 : start + (layer - low) / (high - low) * span);
    const y = (value) => height - edge.bottom - (value - bottom) / (top - bottom) * (height - edge.top - edge.bottom);
    state.unscale = (px) => low + (px - start) / span * (high - low);
    if (quantity === 'z') {
      svg.append(K.draw('rect', { class: 'null-band', x: edge.left, y: y(3), width: width - edge.left - edge.right, height: y(-3) - y(3) }));
      svg.append(K.draw('text', { x: width - edge.right - 4, y: y(3) - 3, 'text-anchor': 'end' }, K.say('js.chart.band')));
    }
    for (const tick of steps(bottom, top, 6)) {
      svg.append(K.draw('line', { class: Math.abs(tick) < 1e-12 ? 'zero' : 'gridline', x1: edge.left, x2: width - edge.right, y1: y(tick), y2: y(tick) }));
      svg.append(K.draw('text', { x: edge.left - 6, y: y(tick) + 4, 'text-anchor': 'end' }, String(Number(tick.toPrecision(6)))));
    }
    const every = Math.max(1, Math.ceil((high - low) / Math.max(2, (width - 90) / 30)));
    for (let layer = m.filter.first; layer <= m.filter.last; layer += every) {
      svg.append(K.draw('text', { x: x(layer), y: height - edge.bottom + 18, 'text-anchor': 'middle' }, String(layer)));
    }
    if (outside) svg.append(K.draw('text', { x: x(null), y: height - edge.bottom + 18, 'text-anchor': 'middle' }, K.DASH));
    svg.append(K.draw('text', { x: width - edge.right, y: height - 6, 'text-anchor': 'end' }, K.say('js.axis.layer')));
    svg.append(K.draw('text', { x: 6, y: 15 }, axis));
    const roles = [...new Set(points.map((point) => point.role))];
    for (const role of roles) {
      const own = points.filter((point) => point.role === role);
      const joined = own.filter((point) => point.layer !== null && m.expert(point.i) === null);
      if (joined.length > 1) {
        const path = joined.map((point, k) => `${k ? 'L' : 'M'}${x(point.layer).toFixed(1)} ${y(point.y).toFixed(1)}`).join('');
        svg.append(K.draw('path', { d: path, fill: 'none', stroke: colour(role), 'stroke-width': 1.2, opacity: 0.75 }));
      }
      for (const point of own) {
        point.px = x(point.layer);
        point.py = y(point.y);
        svg.append(shape(role, point.px, point.py, 4));
      }
    }
    const ring = K.draw('circle', { class: 'cursor', r: 9, cx: -50, cy: -50 });
    const brush = K.draw('rect', { class: 'brush', x: 0, y: edge.top, width: 0, height: height - edge.top - edge.bottom });
    svg.append(ring, brush);
    state.ring = ring;
    state.brush = brush;
    box.replaceChildren(svg);
    legend.replaceChildren(...roles.map((role) => {
      const item = K.make('li');
      const sign = K.draw('svg', { width: 14, height: 14, viewBox: '0 0 14 14' });
      sign.append(shape(role, 7, 7, 4.5));
      item.append(sign, m.roles[role]);
      return item;
    }));
  }
  function point(to) {
    state.cursor = to;
    const found = state.points[to];
    state.ring.setAttribute('cx', found.px);
    state.ring.setAttribute('cy', found.py);
    readout.textContent = m.describe(found.i);
  }
  function nearest(event) {
    const frame = box.getBoundingClientRect();
    const px = event.clientX - frame.left;
    const py = event.clientY - frame.top;
    let best = -1;
    let least = 40 * 40;
    state.points.forEach((candidate, k) => {
      const away = (candidate.px - px) ** 2 + (candidate.py - py) ** 2;
      if (away < least) { least = away; best = k; }
    });
    return { best, px };
  }
  box.addEventListener('pointermove', (event) => {
    if (!state.points.length) return;
    const { best, px } = nearest(event);
    if (state.drag !== null && event.buttons) {
      state.brush.setAttribute('x', Math.min(px, state.drag));
      state.brush.setAttribute('width', Math.abs(px - state.drag));
      return;
    }
    tell(best, event);
  });
  function tell(best, event) {
    if (best < 0) { K.hideTip(); return; }
    point(best);
    K.showTip(m.describe(state.points[best].i), event.clientX, event.clientY);
  }
  box.addEventListener('pointerdown', (event) => {
    if (!state.points.length) return;
    const { best, px } = nearest(event);
    if (event.pointerType === 'mouse') {
      if (event.button === 0) state.drag = px;
    } else tell(best, event);
  });
  window.addEventListener('pointerup', (event) => {
    if (state.drag === null) return;
    const from = state.drag;
    const to = event.clientX - box.getBoundingClientRect().left;
    state.drag = null;
    if (state.brush) state.brush.setAttribute('width', 0);
    if (Math.abs(to - from) < 12 || !state.unscale) return;
    const [a, b] = [from, to].map(state.unscale).sort((p, q) => p - q);
    if (Math.floor(b) >= Math.ceil(a)) m.setLayers(Math.ceil(a), Math.floor(b));
  });
  box.addEventListener('pointerleave', K.hideTip);
  function zoom(factor) {
    const middle = (m.filter.first + m.filter.last) / 2;
    const half = Math.max(1, (m.filter.last - m.filter.first) / 2 * factor);
    m.setLayers(Math.round(middle - half), Math.round(middle + half));
  }
  const whole = () => m.setLayers(m.lowest, m.highest);
  K.byId('zoom-in').addEventListener('click', () => zoom(0.5));
  K.byId('zoom-out').addEventListener('click', () => zoom(2));
  K.byId('zoom-reset').addEventListener('click', whole);
  function step(by) {
    const now = state.cursor ?? (by > 0 ? -1 : state.points.length);
    return Math.max(0, Math.min(state.points.length - 1, now + by));
  }
  function otherRole(by) {
    const now = state.points[state.cursor ?? 0];
    const roles = [...new Set(state.points.map((candidate) => candidate.role))];
    const role = roles[Math.max(0, Math.min(roles.length - 1, roles.indexOf(now.role) + by))];
    const own = state.points.map((candidate, k) => [candidate, k]).filter(([candidate]) => candidate.role === role);
    const away = (layer) => Math.abs((layer ?? -1) - (now.layer ?? -1));
    return own.reduce((best, next) => (away(next[0].layer) < away(best[0].layer) ? next : best))[1];
  }
  const keys = {
    ArrowRight: () => point(step(1)), ArrowLeft: () => point(step(-1)), ArrowDown: () => point(otherRole(1)), ArrowUp: () => point(otherRole(-1)),
    Home: () => point(0), End: () => point(state.points.length - 1),
    '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), 0: whole,
  };
  box.addEventListener('keydown', (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!state.points.length && event.key.length > 1) return;
    event.preventDefault();
    keys[event.key]();
  });
  metricBox.addEventListener('change', render);
  quantityBox.addEventListener('change', render);
  m.onFilter(render);
  new ResizeObserver(() => { if (Math.abs((state.width || 0) - box.clientWidth) > 1) { state.width = box.clientWidth; render(); } }).observe(box);
})();
