/* All measurements: filters, and the table. */
K.part(() => {
  const root = K.byId('explorer');
  if (!root) return;
  const source = K.data.measured;
  const m = { ...source, count: source.rows.length, LESS: 1, BOUND: 2, NO_TEST: 4 };
  const found = K.data.report.comparisons.flatMap((item) => (item.measurements.length ? item.measurements : [{ value: null, null: null }]));
  const column = (read) => Float64Array.from(found, (item) => read(item) ?? NaN);
  m.value = column((item) => item.value);
  m.mean = column((item) => item.null?.mean);
  m.sd = column((item) => item.null?.sd);
  m.z = column((item) => item.null?.z);
  m.p = column((item) => item.null?.log10_p);
  m.n = column((item) => item.null?.n);
  for (const [at, key] of ['place', 'metric', 'how', 'why', 'flags'].entries()) m[key] = source.rows.map((row) => row[at]);
  m.source = (i) => K.said(m.hows[m.how[i]]);
  m.remark = (i) => K.said(m.texts[m.why[i]]);
  m.role = (i) => m.places[m.place[i]][0];
  m.layer = (i) => m.places[m.place[i]][1];
  m.expert = (i) => m.places[m.place[i]][2];
  m.where = (i) => {
    const [, layer, expert] = m.places[m.place[i]];
    if (layer === null) return K.say('js.no_layer');
    return expert === null ? K.say('js.layer', { layer }) : K.say('js.expert', { layer, expert });
  };
  m.describe = (i) => {
    const shared = { role: m.roles[m.role(i)], place: m.where(i), metric: m.metrics[m.metric[i]], value: K.number(m.value[i]) };
    if (m.flags[i] & m.NO_TEST) return K.say('js.point.none', { ...shared, reason: m.remark(i) || K.DASH });
    return K.say('js.point', { ...shared, mean: K.number(m.mean[i]), sd: K.number(m.sd[i]), z: K.zed(m.z[i]),
      p: K.logp(m.p[i], m.flags[i] & m.BOUND), n: m.n[i] });
  };

  /* shared filters */
  const layers = m.places.map((place) => place[1]).filter((layer) => layer !== null);
  m.lowest = layers.length ? Math.min(...layers) : 0;
  m.highest = layers.length ? Math.max(...layers) : 0;
  m.filter = { roles: new Set(m.roles.keys()), first: m.lowest, last: m.highest };
  const listeners = [];
  m.onFilter = (act) => listeners.push(act);
  const changed = () => { tellRoles(); listeners.forEach((act) => act()); };
  m.passes = (i) => {
    const [role, layer] = m.places[m.place[i]];
    if (!m.filter.roles.has(role)) return false;
    if (layer === null) return m.filter.first <= m.lowest;
    return layer >= m.filter.first && layer <= m.filter.last;
  };
  const boxes = K.byId('role-boxes');
  m.roles.forEach((name, role) => {
    const label = K.make('label');
    const box = K.make('input', { type: 'checkbox', value: role });
    box.checked = true;
    box.addEventListener('change', () => { if (box.checked) m.filter.roles.add(role); else m.filter.roles.delete(role); changed(); });
    label.append(box, ' ', K.make('code', {}, name));
    boxes.append(label);
  });
  function setAll(on) {
    boxes.querySelectorAll('input').forEach((box) => { box.checked = on; });
    m.filter.roles = new Set(on ? m.roles.keys() : []);
    changed();
  }
  function tellRoles() { K.byId('role-count').textContent = K.say('js.shown', { roles: m.filter.roles.size, of: m.roles.length }); }
  K.byId('roles-all').addEventListener('click', () => setAll(true));
  K.byId('roles-none').addEventListener('click', () => setAll(false));
  const first = K.byId('layer-first');
  const last = K.byId('layer-last');
  for (const input of [first, last]) { input.min = m.lowest; input.max = m.highest; }
  m.setLayers = (low, high) => {
    m.filter.first = Math.max(m.lowest, Math.min(low, high));
    m.filter.last = Math.min(m.highest, Math.max(low, high));
    first.value = m.filter.first;
    last.value = m.filter.last;
    changed();
  };
  const typed = (input, fallback) => (input.value === '' || Number.isNaN(input.valueAsNumber) ? fallback : Math.round(input.valueAsNumber));
  for (const input of [first, last]) {
    input.addEventListener('change', () => m.setLayers(typed(first, m.lowest), typed(last, m.highest)));
  }
  first.value = m.lowest;
  last.value = m.highest;

  /* the table */
  const table = K.byId('rows');
  const body = table.tBodies[0];
  const SIZE = 25;
  const state = { key: null, up: true, metric: '', search: '', page: 0, rows: [] };
  const values = {
    role: (i) => m.roles[m.role(i)], layer: (i) => m.layer(i), metric: (i) => m.metrics[m.metric[i]], observed: (i) => m.value[i],
    null_mean: (i) => m.mean[i], null_sd: (i) => m.sd[i], z: (i) => m.z[i], log_p: (i) => m.p[i],
    n: (i) => (m.flags[i] & m.NO_TEST ? null : m.n[i]), p_from: (i) => m.source(i),
  };
  function choose() {
    const wanted = state.search.toLowerCase();
    const hit = wanted ? m.names.map((name) => name.toLowerCase().includes(wanted)) : null;
    const rows = [];
    for (let i = 0; i < m.count; i += 1) {
      if (!m.passes(i) || (state.metric !== '' && m.metric[i] !== Number(state.metric))) continue;
      const place = m.places[m.place[i]];
      if (!hit || hit[place[3]] || hit[place[4]]) rows.push(i);
    }
    if (state.key) rows.sort((a, b) => K.order(values[state.key](a), values[state.key](b), state.up) || a - b);
    state.rows = rows;
    state.page = 0;
    fill();
  }
  function cell(text, kind, title) {
    const td = K.make('td', kind ? { class: kind } : {}, text);
    if (title) td.title = title;
    return td;
  }
  function line(i) {
    const tr = K.make('tr');
    const place = m.places[m.place[i]];
    const tensors = place[3] === place[4] ? m.names[place[3]] : `${m.names[place[3]]} / ${m.names[place[4]]}`;
    const role = cell('', '', tensors);
    role.append(K.make('code', {}, m.roles[place[0]]));
    const layer = place[1] === null ? K.DASH : place[2] === null ? String(place[1]) : `${place[1]} e${place[2]}`;
    const none = m.flags[i] & m.NO_TEST;
    tr.append(role, cell(layer, 'num'), cell(m.metrics[m.metric[i]] || K.DASH, ''), cell(K.number(m.value[i]), 'num'), cell(K.number(m.mean[i]), 'num'),
      cell(K.number(m.sd[i]), 'num'), cell(K.zed(m.z[i]), 'num'), cell(K.logp(m.p[i], m.flags[i] & m.BOUND), 'num'),
      cell(none ? K.DASH : String(m.n[i]), 'num'), cell(none ? m.remark(i) || K.DASH : m.source(i), none ? '' : 'brief', m.remark(i)));
    return tr;
  }
  function fill() {
    const pages = Math.max(1, Math.ceil(state.rows.length / SIZE));
    state.page = Math.max(0, Math.min(pages - 1, state.page));
    const shown = state.rows.slice(state.page * SIZE, (state.page + 1) * SIZE).map(line);
    if (!shown.length) {
      const tr = K.make('tr');
      tr.append(K.make('td', { colspan: 10 }, K.say('js.no_rows')));
      shown.push(tr);
    }
    body.replaceChildren(...shown);
    K.byId('page-count').textContent = K.say('js.page', { page: state.page + 1, pages, rows: state.rows.length.toLocaleString('en') });
    const from = state.page * SIZE;
    K.byId('rows-printed').textContent = K.say('js.printed', { first: Math.min(from + 1, state.rows.length), last: Math.min(from + SIZE, state.rows.length),
      rows: state.rows.length.toLocaleString('en'), all: m.count.toLocaleString('en') });
    for (const id of ['page-first', 'page-back']) K.byId(id).disabled = state.page === 0;
    for (const id of ['page-next', 'page-last']) K.byId(id).disabled = state.page === pages - 1;
  }
  table.querySelectorAll('th').forEach((th) => {
    th.querySelector('button').addEventListener('click', () => {
      state.up = state.key === th.dataset.key ? !state.up : true;
      state.key = th.dataset.key;
      table.querySelectorAll('th').forEach((other) => other.removeAttribute('aria-sort'));
      th.setAttribute('aria-sort', state.up ? 'ascending' : 'descending');
      choose();
    });
  });
  const turn = (to) => () => { state.page = to(state.page); fill(); };
  K.byId('page-first').addEventListener('click', turn(() => 0));
  K.byId('page-back').addEventListener('click', turn((page) => page - 1));
  K.byId('page-next').addEventListener('click', turn((page) => page + 1));
  K.byId('page-last').addEventListener('click', turn(() => Infinity));
  const metric = K.byId('rows-metric');
  m.metrics.forEach((name, position) => { if (name) metric.append(K.make('option', { value: position }, name)); });
  metric.addEventListener('change', () => { state.metric = metric.value; choose(); });
  const search = K.byId('rows-search');
  search.addEventListener('input', () => { state.search = search.value.trim(); choose(); });
  m.onFilter(choose);
  K.onChange(() => { tellRoles(); fill(); });
  tellRoles();
  choose();
  K.measured = m;
});
