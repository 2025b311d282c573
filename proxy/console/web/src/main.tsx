import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import "./grid.css";
import "./explorer.css";
import { App, applyTheme } from "./app";
import { escapeText } from "./printable";

escapeText();
applyTheme();
render(<App />, document.getElementById("app")!);
