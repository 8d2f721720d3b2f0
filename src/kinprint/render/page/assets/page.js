/* Small things: theme, tables that sort, the identity's slider, copying, printing. */
K.part(() => {
  const theme = K.byId('theme');
  theme.addEventListener('change', () => {
    if (theme.value === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
    K.changed();
  });
  const system = window.matchMedia('(prefers-color-scheme: dark)');
  system.addEventListener('change', K.changed);

  document.querySelectorAll('table.sortable').forEach((table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((th, column) => {
      const button = K.make('button', { type: 'button', class: 'sort' });
      button.append(...th.childNodes);
      th.append(button);
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
    K.onChange(tell);
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

  K.byId('save').addEventListener('click', () => {
    const address = URL.createObjectURL(new Blob([K.data.json], { type: 'application/json' }));
    K.make('a', { href: address, download: 'report.json' }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  });

  /* a link to something inside a part opens the part */
  document.querySelectorAll('a[href^="#"]').forEach((link) => link.addEventListener('click', () => {
    for (let at = document.querySelector(link.getAttribute('href')); at; at = at.parentElement) if (at.tagName === 'DETAILS') at.open = true;
  }));
});
/* the other language: texts and attributes in the order of the page, exchanged with those that are shown */
K.part(() => {
  const button = K.byId('language');
  const { other } = K.data;
  button.hidden = !other;
  button.addEventListener('click', () => {
    other.texts.forEach((item) => { [item[1].nodeValue, item[2]] = [item[2], item[1].nodeValue]; });
    other.attributes.forEach((item) => {
      const before = item[1].getAttribute(item[2]);
      if (item[3] === null) item[1].removeAttribute(item[2]);
      else item[1].setAttribute(item[2], item[3]);
      item[3] = before;
    });
    K.data.lang = document.documentElement.lang;
    K.changed();
  });
});
(() => { /* before anything moves: which element and which text is which */
  const elements = [...document.querySelectorAll('*')];
  const texts = [];
  const walk = document.createTreeWalker(document, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) if (walk.currentNode.nodeValue.trim()) texts.push(walk.currentNode);
  K.place = (other) => other && {
    texts: other.texts.map(([at, text]) => [at, texts[at], text]),
    attributes: other.attributes.map(([at, name, value]) => [at, elements[at], name, value]),
  };
})();
K.start();
