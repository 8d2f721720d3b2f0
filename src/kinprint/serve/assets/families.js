/* The catalog as a graph. It is laid out once by a worker; while it is moved, a picture of it is moved (10,000 models take longer to
   draw than a frame), and when it rests it is drawn anew. What is shown is chosen by the server, for the graph as for the tables. */
'use strict';
(() => {
  const canvas = document.getElementById('canvas');
  if (!canvas) return;
  const page = canvas.getContext('2d', { alpha: false });
  const words = JSON.parse(canvas.dataset.words);
  const say = (key, values = {}) => Object.entries(values).reduce((text, [name, value]) => text.replace(`{${name}}`, value), words[`serve.fam.js.${key}`]);
  const told = document.getElementById('told');
  const form = document.getElementById('filters');
  const RESTS_MS = 140, STALE_MS = 700, NEAR = 14, BATCH = 400, LABELS = 120, DOT = 2.6;
  const EDGES = [['--s0', 1.2, []], ['--s1', 1.8, [6, 4]], ['--s3', 1.8, []], ['--s6', 1.2, [2, 4]]];
  let names = [], ids = [], edges = [], at = new Map(), x = null, y = null, shown = null, shownEdges = [], tree = null, colours = {};
  let view = { x: 0, y: 0, k: 1 }, drawn = null, picture = document.createElement('canvas'), wide = 0, high = 0, scale = 1;
  let cursor = -1, sides = [-1, -1], asked = false, crisp = true, rests = 0, painted = 0, frames = 0;

  /* -- drawing ---------------------------------------------------------------------------------------------------------- */
  const look = () => {
    const style = getComputedStyle(document.documentElement);
    for (const name of ['--paper', '--ink', '--accent', '--warn', '--s0', '--s1', '--s3', '--s6']) colours[name] = style.getPropertyValue(name).trim();
  };
  const paint = () => {
    const pen = picture.getContext('2d', { alpha: false }), { x: left, y: up, k } = view;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = colours['--paper'];
    pen.fillRect(0, 0, wide, high);
    const px = (node) => (x[node] - left) * k, py = (node) => (y[node] - up) * k;
    const inside = (a, b) => !((a[0] < 0 && b[0] < 0) || (a[1] < 0 && b[1] < 0) || (a[0] > wide && b[0] > wide) || (a[1] > high && b[1] > high));
    EDGES.forEach(([colour, width, dash], state) => {
      pen.strokeStyle = colours[colour];
      pen.lineWidth = width * Math.min(1, Math.max(0.5, k));
      pen.setLineDash(k > 0.5 ? dash : []); // dashes shorter than a pixel cost much and show nothing
      let count = 0;
      pen.beginPath();
      for (const edge of shownEdges) {
        if (edge[3] !== state) continue;
        const a = [px(edge[1]), py(edge[1])], b = [px(edge[2]), py(edge[2])];
        if (!inside(a, b)) continue;
        pen.moveTo(a[0], a[1]);
        pen.lineTo(b[0], b[1]);
        count += 1;
        if (count % BATCH === 0) { pen.stroke(); pen.beginPath(); } // one path of all takes many times as long
      }
      pen.stroke();
    });
    pen.setLineDash([]);
    pen.fillStyle = colours['--ink'];
    const r = DOT * Math.min(2.2, Math.max(0.45, Math.sqrt(k))), visible = [];
    for (const node of shown) {
      const a = px(node), b = py(node);
      if (a < -r || b < -r || a > wide + r || b > high + r) continue;
      visible.push(node);
      pen.fillRect(a - r, b - r, 2 * r, 2 * r);
    }
    pen.font = `12px ${getComputedStyle(canvas).fontFamily}`;
    if (visible.length <= LABELS) visible.forEach((node) => label(pen, node, px(node), py(node), r));
    drawn = { ...view };
    crisp = true;
  };
  const label = (pen, node, a, b, r) => {
    const text = names[node].length > 40 ? `${names[node].slice(0, 39)}…` : names[node];
    pen.lineWidth = 3;
    pen.strokeStyle = colours['--paper'];
    pen.strokeText(text, a + r + 3, b + 4);
    pen.fillText(text, a + r + 3, b + 4);
  };
  const mark = (node, colour, text) => {
    const a = (x[node] - view.x) * view.k, b = (y[node] - view.y) * view.k;
    page.strokeStyle = page.fillStyle = colours[colour];
    page.lineWidth = 2.5;
    page.beginPath();
    page.arc(a, b, 8, 0, 2 * Math.PI);
    page.stroke();
    page.font = `bold 13px ${getComputedStyle(canvas).fontFamily}`;
    label(page, node, a, b, 9);
    if (text) page.fillText(text, a - 4, b - 12);
  };
  const frame = () => {
    asked = false;
    if (!x || !wide) return;
    const now = performance.now();
    if (!crisp && (now - rests >= RESTS_MS || now - painted >= STALE_MS)) { paint(); painted = performance.now(); }
    const ratio = view.k / drawn.k;
    page.setTransform(scale, 0, 0, scale, 0, 0);
    page.fillStyle = colours['--paper'];
    page.fillRect(0, 0, wide, high);
    page.drawImage(picture, (drawn.x - view.x) * view.k, (drawn.y - view.y) * view.k, wide * ratio, high * ratio);
    if (cursor >= 0) mark(cursor, '--accent');
    sides.forEach((node, side) => { if (node >= 0) mark(node, '--warn', 'AB'[side]); });
    frames += 1;
    canvas.dataset.frames = frames;
    if (!crisp) ask();
  };
  const ask = () => { if (!asked) { asked = true; requestAnimationFrame(frame); } };
  const moved = () => { rests = performance.now(); if (crisp) painted = rests; crisp = false; ask(); };
  const anew = () => { crisp = false; rests = 0; ask(); };
  const fit = (nodes = shown) => {
    if (!x || !nodes.length || !wide) return;
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const node of nodes) { x0 = Math.min(x0, x[node]); x1 = Math.max(x1, x[node]); y0 = Math.min(y0, y[node]); y1 = Math.max(y1, y[node]); }
    const k = Math.min(6, (wide - 140) / Math.max(1, x1 - x0), (high - 60) / Math.max(1, y1 - y0));
    view = { k, x: (x0 + x1) / 2 - (wide - 60) / 2 / k, y: (y0 + y1) / 2 - high / 2 / k };
    anew();
  };
  const zoom = (by, a = wide / 2, b = high / 2) => {
    const k = Math.min(20, Math.max(0.01, view.k * by));
    view = { k, x: view.x + a / view.k - a / k, y: view.y + b / view.k - b / k };
    moved();
  };
  const pan = (a, b) => { view = { ...view, x: view.x - a / view.k, y: view.y - b / view.k }; moved(); };
  const size = () => {
    const box = canvas.getBoundingClientRect(), first = !wide;
    if (!box.width) return;
    scale = Math.min(2, devicePixelRatio || 1);
    [wide, high] = [box.width, box.height];
    for (const each of [canvas, picture]) { each.width = wide * scale; each.height = high * scale; }
    if (first) fit(); else anew();
  };

  /* -- choosing --------------------------------------------------------------------------------------------------------- */
  const point = (node) => {
    cursor = node;
    const a = (x[node] - view.x) * view.k, b = (y[node] - view.y) * view.k;
    if (a < 20 || b < 20 || a > wide - 20 || b > high - 20) { view = { ...view, x: x[node] - wide / 2 / view.k, y: y[node] - high / 2 / view.k }; moved(); }
    told.textContent = say('at', { name: names[node] });
    ask();
  };
  const choose = async (node) => {
    const side = sides[0] < 0 || (sides[0] >= 0 && sides[1] >= 0) ? 0 : 1;
    if (side === 1 && node === sides[0]) return;
    sides = side === 0 ? [node, -1] : [sides[0], node];
    put(side, await text(`/families/models/${ids[node]}?lang=${document.documentElement.lang}`));
    if (side === 0) put(1, null);
    ask();
  };
  const put = (side, html) => {
    const place = document.getElementById(`side-${'ab'[side]}`), input = document.querySelector(`#pair input[name=${'ab'[side]}]`);
    const made = html === null ? null : new DOMParser().parseFromString(html, 'text/html').querySelector('.chosen');
    place.replaceChildren(made || say('pick'));
    input.value = made ? made.dataset.name : '';
    if (made) told.textContent = say(`side.${'ab'[side]}`, { name: made.dataset.shown });
    const go = document.getElementById('go');
    if (go) go.disabled = sides[1] < 0;
  };
  const beside = (ux, uy) => { // the nearest model in a direction, by distance and by how far off the direction it stands
    if (!shown.length) return;
    if (cursor < 0) { point(tree.find(view.x + wide / 2 / view.k, view.y + high / 2 / view.k)); return; }
    let best = -1, least = Infinity;
    for (const node of shown) {
      const along = (x[node] - x[cursor]) * ux + (y[node] - y[cursor]) * uy;
      const off = Math.abs((x[node] - x[cursor]) * uy - (y[node] - y[cursor]) * ux);
      if (along > 1e-6 && off <= along * 1.2 && along + 2 * off < least) { best = node; least = along + 2 * off; }
    }
    if (best >= 0) point(best);
  };
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  canvas.addEventListener('keydown', (event) => {
    if (!x || event.ctrlKey || event.altKey || event.metaKey) return;
    const way = ARROWS[event.key];
    if (way && event.shiftKey) pan(-60 * way[0], -60 * way[1]);
    else if (way) beside(...way);
    else if (event.key === '+' || event.key === '=') zoom(1.3);
    else if (event.key === '-') zoom(1 / 1.3);
    else if (event.key === '0') fit();
    else if ((event.key === 'Enter' || event.key === ' ') && cursor >= 0) choose(cursor);
    else if (event.key === 'Escape') { sides = [-1, -1]; cursor = -1; put(0, null); put(1, null); ask(); }
    else return;
    event.preventDefault();
  });

  /* -- pointers: one moves, two zoom, one that did not move chooses ------------------------------------------------------ */
  const down = new Map();
  let travelled = 0;
  const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  const under = (event) => { const [a, b] = place(event); return tree ? tree.find(view.x + a / view.k, view.y + b / view.k, NEAR / view.k) : undefined; };
  canvas.addEventListener('pointerdown', (event) => {
    if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
    if (!down.size) travelled = 0;
    down.set(event.pointerId, place(event));
  });
  canvas.addEventListener('pointermove', (event) => {
    const before = down.get(event.pointerId);
    if (!x) return;
    if (!before) { const node = under(event); canvas.classList.toggle('over', node !== undefined); if (node !== undefined && node !== cursor) point(node); return; }
    const now = place(event), others = [...down].filter(([id]) => id !== event.pointerId).map(([, spot]) => spot);
    travelled += Math.hypot(now[0] - before[0], now[1] - before[1]);
    if (others.length) zoom(Math.hypot(now[0] - others[0][0], now[1] - others[0][1]) / Math.max(1, Math.hypot(before[0] - others[0][0], before[1] - others[0][1])), ...others[0]);
    else pan(now[0] - before[0], now[1] - before[1]);
    down.set(event.pointerId, now);
  });
  const up = (event) => {
    if (!down.delete(event.pointerId) || event.type === 'pointercancel' || down.size || travelled > 5) return;
    const node = under(event);
    if (node !== undefined) { point(node); choose(node); }
  };
  canvas.addEventListener('pointerup', up);
  canvas.addEventListener('pointercancel', up);
  canvas.addEventListener('wheel', (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY / 400), ...place(event)); }, { passive: false });
  document.getElementById('in').addEventListener('click', () => zoom(1.4));
  document.getElementById('out').addEventListener('click', () => zoom(1 / 1.4));
  document.getElementById('fit').addEventListener('click', () => fit());

  /* -- what is shown ----------------------------------------------------------------------------------------------------- */
  const text = async (path) => { const reply = await fetch(path); if (!reply.ok) throw new Error(reply.status); return reply.text(); };
  const asking = () => new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  const show = ({ nodes, edges: kept }) => {
    shown = nodes.map((id) => at.get(id)).filter((node) => node !== undefined);
    const wanted = new Set(kept);
    shownEdges = edges.filter((edge) => wanted.has(edge[0]));
    if (x) tree = d3.quadtree(shown, (node) => x[node], (node) => y[node]);
    if (cursor >= 0 && !nodes.includes(ids[cursor])) cursor = -1;
    told.textContent = say('shown', { models: shown.length.toLocaleString(), relations: shownEdges.length.toLocaleString() });
    canvas.dataset.models = shown.length;
    canvas.dataset.relations = shownEdges.length;
  };
  let turn = 0, later = 0;
  const busy = (state) => document.querySelector('.explorer').setAttribute('aria-busy', state);
  const choice = async (path) => {
    clearTimeout(later); // what was typed is part of this choice, or given up by it
    busy(true);
    turn += 1;
    const mine = turn;
    const query = path.split('?')[1] || '';
    try {
      const [html, kept] = await Promise.all([text(path), text(`/families/shown.json?${query}`)]);
      if (mine !== turn) return; // a later choice has overtaken this one
      const made = new DOMParser().parseFromString(html, 'text/html');
      document.getElementById('tables').replaceWith(made.getElementById('tables'));
      document.getElementById('language').replaceWith(made.getElementById('language'));
      history.replaceState(null, '', path);
      show(JSON.parse(kept));
      fit();
    } catch { if (mine === turn) told.textContent = say('failed'); }
    if (mine === turn) busy(false);
  };
  const chosen = () => choice(`/families?${asking()}`);
  form.addEventListener('input', () => { busy(true); turn += 1; clearTimeout(later); later = setTimeout(chosen, 250); });
  form.addEventListener('submit', (event) => { event.preventDefault(); chosen(); });
  document.addEventListener('click', (event) => {
    const link = event.target.closest?.('.quick a, #tables .pager a');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    if (link.id === 'all') form.querySelectorAll('select, [type=search]').forEach((field) => { field.value = ''; });
    if (link.dataset.kind !== undefined) for (const name of ['kind', 'declared']) form.elements[name].value = link.dataset[name];
    if (link.dataset.kind !== undefined) chosen(); else choice(link.getAttribute('href')).then(() => document.getElementById('table-title').scrollIntoView());
  });

  /* -- the beginning ----------------------------------------------------------------------------------------------------- */
  const begin = async () => {
    const [all, kept] = await Promise.all([text('/families/graph.json'), text(`/families/shown.json?${asking()}`)]);
    const data = JSON.parse(all);
    ({ nodes: ids, names } = data);
    at = new Map(ids.map((id, node) => [id, node]));
    edges = data.edges.map(([id, a, b, state]) => [id, at.get(a), at.get(b), state]);
    show(JSON.parse(kept));
    const worker = new Worker(canvas.dataset.layout);
    worker.onerror = () => { told.textContent = say('failed'); };
    worker.onmessage = ({ data: part }) => {
      if (part.share !== undefined) { told.textContent = say('layout', { share: Math.round(100 * part.share) }); return; }
      ({ x, y } = part);
      worker.terminate();
      show({ nodes: shown.map((node) => ids[node]), edges: shownEdges.map((edge) => edge[0]) });
      look();
      wide = 0;
      size();
      canvas.dataset.ready = 'yes';
    };
    worker.postMessage({ d3: canvas.dataset.d3, count: ids.length, edges: edges.map(([, a, b]) => [a, b]) });
  };
  const redress = () => { look(); anew(); };
  new ResizeObserver(() => { if (x) size(); }).observe(canvas);
  new MutationObserver(redress).observe(document.documentElement, { attributeFilter: ['data-theme'] });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redress);
  begin().catch(() => { told.textContent = say('failed'); });
})();
