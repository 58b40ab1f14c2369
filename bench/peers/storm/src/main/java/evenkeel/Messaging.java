package evenkeel;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import org.apache.storm.messaging.IConnection;
import org.apache.storm.messaging.IConnectionCallback;
import org.apache.storm.messaging.IContext;
import org.apache.storm.messaging.TaskMessage;
import org.apache.storm.messaging.TransportFactory;
import org.apache.storm.messaging.netty.BackPressureStatus;
import org.apache.storm.metrics2.StormMetricRegistry;
import org.apache.storm.utils.Utils;

/**
 * Storm's Netty layer between two processes, with Storm's default settings: what workers use, without tuples, queues and executors.
 *
 * <pre>
 *  any first line            {"Listens":"PORT"}
 *  count                     {"Count":N}       messages that came
 *  one-way PORT              {"Count":0}       threads send to that port from now on, in batches, until the process ends
 *  ping-pong PORT            {"Count":0}       one message at a time from now on
 *  measure MS                {"Timed":{"messages":N,"took_ns":N,"latencies_ns":[[value,count],...]}}   of ping-pong
 * </pre>
 *
 * Messages are handed to Storm in batches, as its workers' transfer threads do: a thousand, or what makes 64 KiB. What is under way is
 * bounded here, as max.spout.pending bounds it there: the receiver says after each MiB how many messages came, and 16 MiB may be ahead of
 * that. Storm's client has no bound that holds: of large messages it queues gigabytes and spends its time on their memory. It drops what it
 * is given before it is connected, so the first messages are sent again until one came. Latencies are given to three digits.
 */
final class Messaging {
    private static final String TOPOLOGY = "bench";
    private static final int BATCH_MESSAGES = 1_000;
    private static final int BATCH_BYTES = 64 << 10;
    private static final long TELL_BYTES = 1 << 20;
    private static final long AHEAD_BYTES = 16 << 20;
    /** So many first messages are told of one by one. */
    private static final long FIRST_MESSAGES = 100;
    private static final long AGAIN_NS = 1_000_000_000;

    private final IContext context;
    private final IConnection server;
    private final AtomicLong count = new AtomicLong();
    /** What the receiver has told. */
    private final AtomicLong told = new AtomicLong();
    private final AtomicLong sent = new AtomicLong();
    private final int size;
    private final int senders;
    private volatile Thread waits;
    private volatile Recording recording;

    private Messaging(Peer.Options options, Function<Messaging, IConnectionCallback> callback) {
        size = options.number("size");
        senders = options.number("senders");
        Map<String, Object> conf = Utils.readDefaultConfig();
        context = TransportFactory.makeContext(conf, new StormMetricRegistry());
        server = context.bind(
                TOPOLOGY, 0, callback.apply(this), () -> new BackPressureStatus(TOPOLOGY, new ArrayList<>(), new ArrayList<>()));
    }

    static Peer.Answers receiver(Peer.Options options) {
        Messaging here = new Messaging(options, it -> it.new Counter(options));
        return here::answer;
    }

    static Peer.Answers sender(Peer.Options options) {
        Messaging here = new Messaging(options, it -> it::onAnswers);
        return here::answer;
    }

    private IConnection connect(int port) {
        AtomicBoolean[] pressed = new AtomicBoolean[1_100];
        for (int index = 0; index < pressed.length; index++) {
            pressed[index] = new AtomicBoolean();
        }
        return context.connect(TOPOLOGY, "127.0.0.1", port, pressed);
    }

    /** What the receiver sends back: the messages, or how many came. */
    private void onAnswers(List<TaskMessage> messages) {
        count.addAndGet(messages.size());
        byte[] last = messages.get(messages.size() - 1).message();
        if (last.length == Long.BYTES) {
            told.set(ByteBuffer.wrap(last).getLong());
        }
        LockSupport.unpark(waits);
    }

    /** Counts what comes, and sends it back, or how much it was. */
    private final class Counter implements IConnectionCallback {
        private final boolean answers;
        private final IConnection back;
        private long toldMessages;

        Counter(Peer.Options options) {
            answers = options.text("answers").equals("true");
            back = connect(options.number("back-port"));
        }

        @Override
        public void recv(List<TaskMessage> messages) {
            long came = count.addAndGet(messages.size());
            if (answers) {
                back.send(messages.iterator());
            } else if (came < FIRST_MESSAGES || (came - toldMessages) * size >= TELL_BYTES) {
                toldMessages = came;
                byte[] number = ByteBuffer.allocate(Long.BYTES).putLong(came).array();
                back.send(List.of(new TaskMessage(1, number)).iterator());
            }
        }
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "count":
                return "{\"Count\":" + count.get() + "}";
            case "one-way":
                IConnection to = connect(Integer.parseInt(words[1]));
                while (told.get() == 0) {
                    to.send(List.of(new TaskMessage(1, Peer.message(size))).iterator());
                    Thread.sleep(100);
                }
                sent.set(told.get());
                for (int number = 0; number < senders; number++) {
                    int task = number;
                    start(() -> send(to, task));
                }
                return "{\"Count\":0}";
            case "ping-pong":
                IConnection there = connect(Integer.parseInt(words[1]));
                start(() -> ask(there));
                return "{\"Count\":0}";
            case "measure":
                return measure(Long.parseLong(words[1]));
            default:
                return "{\"Listens\":\"" + server.getPort() + "\"}";
        }
    }

    private static void start(Runnable run) {
        Thread thread = new Thread(run);
        thread.setDaemon(true);
        thread.start();
    }

    private void send(IConnection to, int task) {
        int messages = Math.max(1, Math.min(BATCH_MESSAGES, BATCH_BYTES / size));
        List<TaskMessage> batch = new ArrayList<>();
        for (int index = 0; index < messages; index++) {
            batch.add(new TaskMessage(task + 1, Peer.message(size)));
        }
        while (true) {
            to.send(batch.iterator());
            long all = sent.addAndGet(messages);
            waitForRoom(all);
        }
    }

    /** Waits until little enough of {@code all} is under way. What Storm has dropped will never come: it does not count for long. */
    private void waitForRoom(long all) {
        long known = told.get();
        for (long since = System.nanoTime(); (all - told.get()) * size > AHEAD_BYTES; LockSupport.parkNanos(50_000)) {
            if (told.get() != known) {
                known = told.get();
                since = System.nanoTime();
            } else if (System.nanoTime() - since > AGAIN_NS / 10) {
                sent.set(known);
                return;
            }
        }
    }

    private void ask(IConnection there) {
        waits = Thread.currentThread();
        List<TaskMessage> one = List.of(new TaskMessage(1, Peer.message(size)));
        while (true) {
            long start = System.nanoTime();
            long before = count.get();
            there.send(one.iterator());
            for (long again = start + AGAIN_NS; count.get() == before; LockSupport.parkNanos(10_000_000)) {
                if (System.nanoTime() > again) {
                    there.send(one.iterator());
                    again += AGAIN_NS;
                }
            }
            Recording now = recording;
            if (now != null) {
                now.add(System.nanoTime() - start);
            }
        }
    }

    private String measure(long ms) throws InterruptedException {
        Recording now = new Recording();
        long start = System.nanoTime();
        recording = now;
        Thread.sleep(ms);
        recording = null;
        long took = System.nanoTime() - start;
        return now.json(took);
    }

    /** Latencies to three digits. One thread adds. */
    private static final class Recording {
        private final TreeMap<Long, Long> counts = new TreeMap<>();
        private long messages;

        synchronized void add(long ns) {
            long unit = 1;
            while (ns / unit >= 1_000) {
                unit *= 10;
            }
            counts.merge(ns / unit * unit, 1L, Long::sum);
            messages++;
        }

        synchronized String json(long took) {
            StringJoiner latencies = new StringJoiner(",", "[", "]");
            counts.forEach((value, times) -> latencies.add("[" + value + "," + times + "]"));
            return "{\"Timed\":{\"messages\":" + messages + ",\"took_ns\":" + took + ",\"latencies_ns\":" + latencies + "}}";
        }
    }
}
