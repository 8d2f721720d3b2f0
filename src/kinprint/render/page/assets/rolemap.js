/* The map of roles and layers: figures of a cell, and colours that can be looked at alone. */
K.part(() => {
  const m = K.measured;
  const box = K.byId('role-cells');
  if (!m || !box) return;
  const ring = box.querySelector('.cursor');
  const readout = K.byId('role-value');
  const columns = [...new Set(m.places.map((place) => place[1]))].sort((a, b) => (a ?? -1) - (b ?? -1));
  const cells = new Map();
  const usual = m.metrics.indexOf('pearson');
  for (let i = 0; i < m.count; i += 1) {
    const key = `${m.role(i)} ${columns.indexOf(m.layer(i))}`;
    if (!cells.has(key) || (m.metric[i] === usual && m.metric[cells.get(key)] !== usual)) cells.set(key, i);
  }
  let at = [0, 0];
  function tell(row, column) {
    at = [Math.max(0, Math.min(m.roles.length - 1, row)), Math.max(0, Math.min(columns.length - 1, column))];
    ring.setAttribute('x', at[1]);
    ring.setAttribute('y', at[0]);
    const i = cells.get(at.join(' '));
    readout.textContent = i === undefined ? K.say('js.rolemap.none', { role: m.roles[at[0]] }) : m.describe(i);
    return readout.textContent;
  }
  function point(event) {
    const frame = box.getBoundingClientRect();
    const text = tell(Math.floor((event.clientY - frame.top) / frame.height * m.roles.length), Math.floor((event.clientX - frame.left) / frame.width * columns.length));
    K.showTip(text, event.clientX, event.clientY);
  }
  box.addEventListener('pointermove', point);
  box.addEventListener('pointerdown', point);
  box.addEventListener('pointerleave', K.hideTip);
  const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [-1e6, -1e6], End: [1e6, 1e6] };
  box.addEventListener('keydown', (event) => {
    const by = STEPS[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    tell(at[0] + by[0], at[1] + by[1]);
  });
  K.onChange(() => { if (readout.textContent) tell(...at); });

  const chosen = new Set();
  document.querySelectorAll('#role-legend li').forEach((item) => {
    const button = K.make('button', { type: 'button', 'aria-pressed': 'false' });
    button.append(...item.childNodes);
    item.append(button);
    button.addEventListener('click', () => {
      const { bin } = item.dataset;
      if (!chosen.delete(bin)) chosen.add(bin);
      button.setAttribute('aria-pressed', String(chosen.has(bin)));
      box.querySelectorAll('.bin').forEach((path) => path.classList.toggle('faded', chosen.size > 0 && !chosen.has(path.dataset.bin)));
    });
  });
});
