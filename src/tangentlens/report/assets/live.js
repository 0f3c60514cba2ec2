// Asks this machine, and only it, for the record's newest commit; redraws when there is one.
(() => {
  let version = document.getElementById("live").dataset.version;
  const every = 2000;
  async function look() {
    try {
      const answer = await fetch(`/data?have=${encodeURIComponent(version)}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(`answered ${answer.status}`);
      const data = await answer.json();
      document.getElementById("live").innerHTML = data.status;
      document.title = data.title;
      if (data.words !== undefined && !document.querySelector(".play.on")) {
        version = data.version;
        const open = new Set([...document.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
        document.querySelectorAll(".plot.js-plotly-plot").forEach((box) => Plotly.purge(box));
        const linked = document.getElementById("linked")?.checked ?? true;
        const [x, y] = [scrollX, scrollY];
        document.getElementById("page").innerHTML = data.words;
        document.getElementById("linked").checked = linked;
        for (const summary of document.querySelectorAll("summary")) summary.parentElement.open = open.has(summary.textContent);
        tangentlens.begin(data.figures);
        scrollTo({ left: x, top: y, behavior: "instant" });
      }
      if (!data.over) setTimeout(look, every);
    } catch (error) {
      document.getElementById("live").innerHTML = '<strong>Nobody is answering any more.</strong> <span>The page shows what was last seen.</span>';
      setTimeout(look, 5 * every);
    }
  }
  setTimeout(look, every);
})();
