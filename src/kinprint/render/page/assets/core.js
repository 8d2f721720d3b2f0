'use strict';
/* Shared by all parts of the page. Text reaches the page as text only: nothing here parses markup. */
const K = (() => {
  const data = {};
  const DASH = '–';
  const parts = []; // of the page, started when the data are there
  const watchers = []; // of theme and language

  /* one line of JSON with what is shown, and after it the report as it is saved */
  async function load() {
    const packed = new Blob([bytes(byId('kinprint-data').textContent)]).stream();
    const text = await new Response(packed.pipeThrough(new DecompressionStream('deflate'))).text();
    const end = text.indexOf('\n');
    Object.assign(data, JSON.parse(text.slice(0, end)), { json: text.slice(end + 1) });
    data.report = JSON.parse(data.json);
    data.other = K.place(data.other);
  }
  function say(key, values = {}) {
    return data.words[data.lang][key].replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
  }
  const said = (both) => both[data.lang];
  function byId(id) { return document.getElementById(id); }
  function make(tag, attributes = {}, text = null) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== null) node.textContent = text;
    return node;
  }
  function bytes(text) {
    const raw = atob(text);
    const out = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i += 1) out[i] = raw.charCodeAt(i);
    return out.buffer;
  }

  /* numbers, written as the tables of the page write them */
  function scientific(value) {
    const [digits, exponent] = value.toExponential(2).split('e');
    const size = Math.abs(Number(exponent));
    return `${digits}e${Number(exponent) < 0 ? '-' : '+'}${size < 10 ? '0' : ''}${size}`;
  }
  function number(value) {
    if (Number.isNaN(value)) return DASH;
    const size = Math.abs(value);
    if (size < 1e-12) return '0';
    if (size >= 100 && size < 1e5) return value.toFixed(1);
    if (size < 1e-3 || size >= 100) return scientific(value);
    let places = 4; /* what is less than 1 is not written as 1 */
    while (size < 1 && places < 10 && Math.abs(Number(value.toFixed(places))) === 1) places += 1;
    return value.toFixed(places < 10 ? places : 4);
  }
  function zed(value) {
    if (Number.isNaN(value)) return DASH;
    const text = Math.abs(value) < 100 ? value.toFixed(2) : value.toFixed(0);
    return value >= 0 ? `+${text}` : text;
  }
  function logp(value, bound) {
    if (Number.isNaN(value)) return DASH;
    const figure = Math.min(value, 0) + 0;
    return `${bound ? '≤ ' : ''}${figure.toFixed(figure > -100 ? 2 : 0)}`;
  }
  function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

  /* one tooltip for the whole page */
  const tip = byId('tip');
  function showTip(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.max(4, Math.min(x + 14, window.innerWidth - box.width - 4));
    const below = y + 18 + box.height < window.innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${Math.max(4, below ? y + 18 : y - box.height - 12)}px`;
  }
  function hideTip() { tip.hidden = true; }
  document.addEventListener('keydown', (event) => { if (event.key === 'Escape') hideTip(); });
  window.addEventListener('scroll', hideTip, { passive: true });

  /* sortable: numbers by value, words by letter, what is missing always last */
  function order(a, b, up) {
    const missing = (x) => x === null || x === '' || Number.isNaN(x);
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    const sign = up ? 1 : -1;
    return sign * (typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b), data.lang, { numeric: true }));
  }

  const changed = () => watchers.forEach((act) => act());
  async function start() {
    if (!window.DecompressionStream) return; // the page then reads as it does without scripts
    await load();
    document.documentElement.className = 'js';
    parts.forEach((part) => part());
  }
  return { data, DASH, say, said, byId, make, bytes, number, zed, logp, colour, showTip, hideTip, order, start, changed,
    part: (act) => parts.push(act), onChange: (act) => watchers.push(act) };
})();
