import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import "./grid.css";
import { App, applyTheme } from "./app";

applyTheme();
render(<App />, document.getElementById("app")!);
