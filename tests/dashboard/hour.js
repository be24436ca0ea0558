// Stands in for the events of a cluster: 5 Plans over 1,000 nodes, then ten rows that change every three seconds of an hour. Writes
// what it has measured into the document.
(() => {
  const PLANS = 5;
  const NODES = 1000;
  const SECONDS = 3600;
  const STEP = 3;
  // The first minutes fill caches.
  const WARM = 600;
  const PHASES = ['Pending', 'Preparing', 'Draining', 'Upgrading', 'Rebooting', 'Settling'];
  const start = Math.floor(Date.parse('2026-01-01T09:00:00Z') / 1000);
  const time = (second) => new Date((start + second) * 1000).toISOString();
  const row = (number, second) => ({
    plan: `plan-${number % PLANS}`, node: `node-${Math.floor(number / PLANS)}`, state: 'applying',
    // As many spans at every time, so that documents can be compared.
    spans: PHASES.map((phase, index) => ({ phase, from: start + index, reason: `r${second}`, ...(index < PHASES.length - 1 ? { to: start + index + 1 } : {}) })),
  });
  const plans = (second) => Array.from({ length: PLANS }, (_, number) => ({
    name: `plan-${number}`, version: 'v1.34.1+k3s1', state: 'Running', selected: NODES, done: Math.floor(second / 4), applying: 10, waiting: 5, failed: 0,
    held: { reason: 'NoSlot', message: `second ${second}`, remedy: 'wait' }, waits: [{ reason: 'NoSlot', message: `second ${second}`, seconds: second, nodes: 5, isOver: false }],
  }));
  const encoder = new TextEncoder();
  const message = (value) => encoder.encode(`data: ${JSON.stringify(value)}\n\n`);
  const found = {};
  const measure = () => {
    gc();
    gc();
    return { heap: performance.memory.usedJSHeapSize, elements: document.querySelectorAll('*:not(.tick)').length, ticks: document.querySelectorAll('.tick').length };
  };
  const write = () => {
    const said = document.createElement('pre');
    said.id = 'found';
    said.textContent = JSON.stringify(found);
    document.body.append(said);
  };
  window.fetch = async () => new Response(new ReadableStream({
    async start(controller) {
      controller.enqueue(message({ reset: true, source: 'cluster', title: 'Roll-outs', start: time(0), now: time(0), notes: [], versions: [], plans: plans(0), rows: Array.from({ length: PLANS * NODES }, (_, number) => row(number, 0)) }));
      for (let second = STEP; second <= SECONDS; second += STEP) {
        await new Promise((resolve) => setTimeout(resolve, STEP * 1000));
        if (second === WARM) found.before = measure();
        controller.enqueue(message({ now: time(second), plans: plans(second), rows: Array.from({ length: 10 }, (_, index) => row((second * 10 + index) % (PLANS * NODES), second)) }));
      }
      await new Promise((resolve) => setTimeout(resolve, 1000));
      found.after = measure();
      found.shown = document.getElementById('shown').textContent;
      found.waits = document.getElementById('waits').textContent;
      write();
    },
  }), { status: 200 });
})();
