// Draws the figures that the page holds as data, moves them through the steps, and follows light and dark.
const tangentlens = (() => {
  const state = { figures: {}, steps: {}, drawn: new Set(), chosen: null, paper: null };
  const root = document.documentElement;
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const config = {
    responsive: true, displaylogo: false, showTips: false,
    displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
    showSendToCloud: false, plotlyServerURL: "", topojsonURL: "", // nothing a person clicks may send data away
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    toImageButtonOptions: { format: "svg", filename: "tangentlens" },
  };

  // --- light and dark: colours chosen on white get their neighbours that carry on black
  const onDark = {
    "#0072B2": "#4FA8DC", "#D55E00": "#F0813A", "#009E73": "#2BC49A", "#CC79A7": "#DB97BE", "#22262B": "#E7E5E0",
    "#E7E5DF": "#2A2F35", "#B9B6AE": "#555B63", "#00568A": "#7DBBE6",
  };
  // a ramp from dark to pale keeps its order and leaves the darkness of the page
  const lifted = (colour) => colour.replace(/^rgb\((\d+), ?(\d+), ?(\d+)\)$/,
    (_, ...parts) => `rgb(${parts.slice(0, 3).map((part) => Math.round(0.6 * part + 102)).join(", ")})`);
  const scheme = () => root.dataset.scheme;
  const skip = new Set(["x", "y", "z", "text", "customdata", "colorscale", "meta"]);
  function coloured(value) {
    if (scheme() !== "dark") return value;
    if (typeof value === "string") return onDark[value] ?? lifted(value);
    if (Array.isArray(value)) return value.map(coloured);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, skip.has(key) ? item : coloured(item)]));
    }
    return value;
  }

  // --- one figure at one step: the data of the frame laid over the data of the figure
  const frameAt = (figure, step) => {
    const frames = figure.frames ?? [];
    let found = frames[0];
    for (const frame of frames) if (Number(frame.name) <= step) found = frame;
    return found;
  };
  function assembled(figure, step) {
    const data = figure.data.map((trace) => ({ ...trace }));
    const layout = { ...figure.layout };
    const frame = step === null ? null : frameAt(figure, step);
    if (frame) {
      frame.data.forEach((part, i) => Object.assign(data[frame.traces[i]], part));
      Object.assign(layout, frame.layout ?? {});
    }
    if (step !== null && layout.meta?.steps?.length) layout.shapes = [...(layout.shapes ?? []), cursor(layout.meta, step)];
    return [data.map(coloured), coloured(layout)];
  }
  function cursor({ steps, places }, step) {
    let at = 0;
    steps.forEach((other, i) => { if (other <= step) at = i; });
    return { type: "line", x0: places[at], x1: places[at], y0: 0, y1: 1, yref: "y domain", name: "cursor",
             line: { color: "#00568A", width: 1 }, opacity: 0.6 };
  }
  function draw(box) {
    const figure = state.figures[box.id];
    if (!figure) return;
    const [data, layout] = assembled(figure, state.steps[box.id] ?? null);
    const tall = figure.layout.height ?? 360;
    if (state.paper) Object.assign(layout, { width: state.paper[box.closest(".figures").classList[1]], height: 0.62 * tall });
    box.style.width = layout.width ? `${layout.width}px` : "";
    box.style.height = `${layout.height ?? tall}px`;
    Plotly.react(box, data, layout, config);
    state.drawn.add(box.id);
  }
  const boxes = () => [...document.querySelectorAll(".plot")];
  const drawAll = () => boxes().forEach(draw);
  const redraw = () => boxes().filter((box) => state.drawn.has(box.id)).forEach(draw);

  // figures far from the window wait until they come near: a page of many runs opens at once
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { near.unobserve(entry.target); draw(entry.target); }
  }, { rootMargin: "800px" });

  // --- steps
  const stepsOf = (stepper) => JSON.parse(stepper.dataset.steps);
  function show(stepper, position) {
    const steps = stepsOf(stepper);
    const step = steps[position];
    stepper.querySelector("input").value = position;
    stepper.querySelector("output").textContent = `step ${step.toLocaleString("en")}`;
    for (const box of stepper.closest(".panel").querySelectorAll(".plot")) {
      state.steps[box.id] = step;
      if (state.drawn.has(box.id)) draw(box);
    }
    return step;
  }
  const positionAt = (steps, step) => Math.max(0, steps.findLastIndex((other) => other <= step));
  function move(stepper, position) {
    const step = show(stepper, position);
    state.chosen = position === stepsOf(stepper).length - 1 ? null : step; // the last step is where new ones arrive
    if (!document.getElementById("linked")?.checked) return;
    for (const other of document.querySelectorAll(".stepper")) {
      if (other !== stepper) show(other, positionAt(stepsOf(other), step));
    }
    for (const box of boxes()) {
      const figure = state.figures[box.id];
      if (figure?.layout.meta?.steps && !box.closest(".panel").querySelector(".stepper")) {
        state.steps[box.id] = step;
        if (state.drawn.has(box.id)) draw(box);
      }
    }
  }
  function play(stepper, button) {
    if (button.classList.toggle("on")) {
      const input = stepper.querySelector("input");
      let position = Number(input.value) >= Number(input.max) ? -1 : Number(input.value);
      const tick = () => {
        if (!button.classList.contains("on") || !button.isConnected) return;
        move(stepper, ++position);
        if (position >= Number(input.max)) button.classList.remove("on");
        else setTimeout(tick, 250);
      };
      tick();
    }
  }

  // --- the words: contents that know where the reader is
  const here = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of document.querySelectorAll(".contents a")) {
        link.classList.toggle("here", link.getAttribute("href") === `#${entry.target.id}`);
      }
    }
  }, { rootMargin: "-10% 0px -80% 0px" });

  function setScheme(value) {
    root.dataset.scheme = value;
    redraw();
  }
  function begin(figures) {
    state.figures = figures;
    state.drawn.clear();
    for (const stepper of document.querySelectorAll(".stepper")) {
      const steps = stepsOf(stepper);
      show(stepper, state.chosen === null ? steps.length - 1 : positionAt(steps, state.chosen));
    }
    near.disconnect(); here.disconnect();
    boxes().forEach((box) => near.observe(box));
    document.querySelectorAll("section[id]").forEach((section) => here.observe(section));
  }

  document.addEventListener("input", (event) => {
    const stepper = event.target.closest(".stepper");
    if (stepper) move(stepper, Number(event.target.value));
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.id === "scheme") setScheme(scheme() === "dark" ? "light" : "dark");
    if (button?.classList.contains("play")) play(button.closest(".stepper"), button);
  });
  systemDark.addEventListener("change", () => setScheme(systemDark.matches ? "dark" : "light"));

  // paper is white, narrow and has no window: light colours, every figure drawn to its width, every table unfolded
  let before = null;
  addEventListener("beforeprint", () => {
    before = { scheme: scheme(), folded: [...document.querySelectorAll("details:not([open])")] };
    before.folded.forEach((details) => { details.open = true; });
    root.dataset.scheme = "light";
    state.paper = { one: 660, two: 322, three: 212 };
    drawAll();
  });
  addEventListener("afterprint", () => {
    if (!before) return;
    before.folded.forEach((details) => { details.open = false; });
    state.paper = null;
    setScheme(before.scheme);
    before = null;
  });

  setScheme(systemDark.matches ? "dark" : "light");
  begin(JSON.parse(document.getElementById("figures").textContent));
  return { state, config, begin, draw, drawAll, move };
})();
