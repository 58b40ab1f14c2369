package evenkeel;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * The shape of {@code evenkeel bench topology} in Storm's local cluster: one worker of this process, with Storm's default settings.
 *
 * <pre>
 *  any first line        {"Listens":""}       the topology runs
 *  measure MS            {"Ran":{"messages":N,"failed":N,"took_ns":N,"cpu_ns":N,"p50_ns":N,"p99_ns":N}}
 * </pre>
 *
 * With acknowledgements those count that a spout got, and one tuple of 64 is timed from emission to acknowledgement; without, what the
 * last level has executed. Each tuple has bytes of its own, as in ours.
 */
final class SpeedOfLight implements Peer.Answers {
    // Spouts and bolts are serialized: what they share is static.
    private static final LongAdder ACKED = new LongAdder();
    private static final LongAdder EXECUTED = new LongAdder();
    private static final LongAdder FAILED = new LongAdder();
    private static final Latencies COMPLETE = new Latencies();
    private static final int TIMED_EVERY = 64;

    private final Peer.Options options;
    private final boolean acks;

    SpeedOfLight(Peer.Options options) {
        this.options = options;
        acks = options.text("acking").equals("true");
    }

    @Override
    public String answer(String[] words) throws Exception {
        if (!words[0].equals("measure")) {
            start();
            return "{\"Listens\":\"\"}";
        }
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        LongAdder counter = acks ? ACKED : EXECUTED;
        COMPLETE.clear();
        long before = counter.sum();
        long cpu = system.getProcessCpuTime();
        long start = System.nanoTime();
        Thread.sleep(Long.parseLong(words[1]));
        long messages = counter.sum() - before;
        long took = System.nanoTime() - start;
        cpu = system.getProcessCpuTime() - cpu;
        long[] all = COMPLETE.sorted();
        return String.format(
                "{\"Ran\":{\"messages\":%d,\"failed\":%d,\"took_ns\":%d,\"cpu_ns\":%d,\"p50_ns\":%d,\"p99_ns\":%d}}",
                messages, FAILED.sum(), took, cpu, at(all, 0.5), at(all, 0.99));
    }

    private static long at(long[] sorted, double quantile) {
        return sorted.length == 0 ? 0 : sorted[(int) (quantile * (sorted.length - 1))];
    }

    private void start() throws Exception {
        TopologyBuilder builder = new TopologyBuilder();
        int levels = options.number("levels");
        builder.setSpout("spout", new Messages(options.number("size"), acks), options.number("spouts"));
        for (int level = 1; level <= levels; level++) {
            String from = level == 1 ? "spout" : "bolt" + (level - 1);
            builder.setBolt("bolt" + level, new Pass(level == levels), options.number("bolts")).shuffleGrouping(from);
        }
        Config config = new Config();
        config.setNumWorkers(options.number("workers"));
        config.setMaxSpoutPending(options.number("pending"));
        if (!acks) {
            config.setNumAckers(0);
        } else if (options.number("ackers") > 0) {
            config.setNumAckers(options.number("ackers"));
        }
        new LocalCluster().submitTopology("bench", config, builder.createTopology());
    }

    /** Emits one message over and over. */
    private static final class Messages extends BaseRichSpout {
        private final byte[] message;
        private final boolean acks;
        private transient SpoutOutputCollector collector;
        private long next;

        Messages(int size, boolean acks) {
            message = Peer.message(size);
            this.acks = acks;
        }

        @Override
        public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector collector) {
            this.collector = collector;
        }

        @Override
        public void nextTuple() {
            Values values = new Values((Object) message.clone());
            next++;
            if (!acks) {
                collector.emit(values);
            } else if (next % TIMED_EVERY == 0) {
                collector.emit(values, new long[] {System.nanoTime()});
            } else {
                collector.emit(values, Long.valueOf(next));
            }
        }

        @Override
        public void ack(Object id) {
            ACKED.increment();
            if (id instanceof long[] started) {
                COMPLETE.add(System.nanoTime() - started[0]);
            }
        }

        @Override
        public void fail(Object id) {
            FAILED.increment();
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("message"));
        }
    }

    /** Emits what it gets, or only reads it. */
    private static final class Pass extends BaseRichBolt {
        private final boolean isLast;
        private transient OutputCollector collector;
        private int seen;

        Pass(boolean isLast) {
            this.isLast = isLast;
        }

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
            this.collector = collector;
        }

        @Override
        public void execute(Tuple tuple) {
            if (isLast) {
                seen += tuple.getBinary(0).length;
                EXECUTED.increment();
            } else {
                collector.emit(tuple, new Values(tuple.getValue(0)));
            }
            collector.ack(tuple);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            if (!isLast) {
                declarer.declare(new Fields("message"));
            }
        }
    }

    /** The newest latencies, up to a bound. */
    private static final class Latencies {
        private final long[] newest = new long[1 << 20];
        private int count;

        synchronized void clear() {
            count = 0;
        }

        synchronized void add(long ns) {
            newest[count++ % newest.length] = ns;
        }

        synchronized long[] sorted() {
            long[] all = Arrays.copyOf(newest, Math.min(count, newest.length));
            Arrays.sort(all);
            return all;
        }
    }
}
