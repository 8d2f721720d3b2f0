/* Small things: theme, tables that sort, the identity's slider, copying, printing. */
(() => {
  const theme = K.byId('theme');
  theme.addEventListener('change', () => {
    if (theme.value === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
    K.themeChanged();
  });
  const system = window.matchMedia('(prefers-color-scheme: dark)');
  system.addEventListener('change', () => K.themeChanged());

  document.querySelectorAll('table.sortable').forEach((table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((th, column) => {
      const button = K.make('button', { type: 'button', class: 'sort' }, th.textContent);
      th.replaceChildren(button);
      button.addEventListener('click', () => {
        const up = th.getAttribute('aria-sort') !== 'ascending';
        heads.forEach((other) => other.removeAttribute('aria-sort'));
        th.setAttribute('aria-sort', up ? 'ascending' : 'descending');
        const value = (row) => {
          const cell = row.cells[column];
          if (cell.dataset.v === undefined) return cell.textContent.trim();
          return cell.dataset.v === '' ? null : Number(cell.dataset.v);
        };
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [value(row), row]);
        rows.sort((a, b) => K.order(a[0], b[0], up));
        body.replaceChildren(...rows.map(([, row]) => row));
      });
    });
  });

  const identity = K.byId('identity');
  if (identity) {
    const slider = K.byId('identity-r');
    const [a, b, sign] = [identity.dataset.a, identity.dataset.b, identity.dataset.sign].map(Number);
    const tell = () => {
      const r = Number(slider.value);
      const cosine = (sign + r * a * b) / Math.sqrt((1 + a * a) * (1 + b * b));
      K.byId('identity-out').textContent = K.say('js.slider', { r: r.toFixed(2), cosine: cosine.toFixed(6) });
    };
    slider.addEventListener('input', tell);
    tell();
  }

  const copy = K.byId('copy');
  const said = K.byId('copy-said');
  copy.addEventListener('click', async () => {
    const command = K.byId('command');
    try {
      await navigator.clipboard.writeText(command.textContent);
      said.textContent = K.say('js.copied');
    } catch {
      const range = document.createRange();
      range.selectNodeContents(command);
      const selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      said.textContent = K.say('js.copy_failed');
    }
  });

  /* paper cannot be unfolded */
  let opened = [];
  function unfold() {
    if (opened.length) return;
    opened = [...document.querySelectorAll('details:not([open]):not(.chooser)')];
    opened.forEach((part) => { part.open = true; });
    K.themeChanged();
  }
  function fold() {
    opened.forEach((part) => { part.open = false; });
    opened = [];
    K.themeChanged();
  }
  window.addEventListener('beforeprint', unfold);
  window.addEventListener('afterprint', fold);
  window.matchMedia('print').addEventListener('change', (event) => { if (event.matches) unfold(); else fold(); });
})();
