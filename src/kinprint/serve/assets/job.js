/* Progress of one job: stored events first, so that a reload loses nothing; then what comes. */
'use strict';
(() => {
  const job = document.getElementById('job');
  if (!job) return;
  const words = JSON.parse(job.dataset.words);
  const put = (id, text) => { document.getElementById(id).textContent = text; };
  const size = (count) => {
    const units = ['B', 'kB', 'MB', 'GB'];
    let at = 0;
    while (count >= 1000 && at < 3) { count /= 1000; at += 1; }
    return `${at ? count.toFixed(1) : count} ${units[at]}`;
  };
  const source = new EventSource(`/api/jobs/${job.dataset.id}/events`);
  source.onmessage = (event) => {
    const told = JSON.parse(event.data);
    put('state', words[`serve.state.${told.state}`] || told.state);
    if (told.stage) put('stage', words[`serve.stage.${told.stage}`] || told.stage);
    if (told.share !== undefined) document.getElementById('share').value = told.share;
    if (told.bytes) put('read', size(told.bytes));
    if (told.state === 'done') { source.close(); location.replace(job.dataset.result); }
    if (told.state === 'failed' || told.state === 'cancelled') { source.close(); location.reload(); }
  };
})();
