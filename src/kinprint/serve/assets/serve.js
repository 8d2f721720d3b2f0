/* The theme, kept in this browser. Loaded before the page is drawn, so that it does not flash. */
'use strict';
(() => {
  const root = document.documentElement;
  root.className = 'js';
  const kept = () => { try { return localStorage.getItem('theme'); } catch { return null; } };
  const show = (theme) => {
    if (theme === 'light' || theme === 'dark') root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  show(kept());
  document.addEventListener('DOMContentLoaded', () => {
    const theme = document.getElementById('theme');
    theme.value = root.dataset.theme || 'auto';
    theme.addEventListener('change', () => {
      show(theme.value);
      try { localStorage.setItem('theme', theme.value); } catch { /* a browser that keeps nothing */ }
    });
  });
})();
